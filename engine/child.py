"""A process that the supervisor started: how it is started, told things, and how it ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ringbatch.engine.messages import ControlSocket


class Child:
    """One running process in a session of its own, so that Ctrl-C reaches the supervisor alone.

    Attributes:
        title: what it is called in `ps` and in messages.
        pid: its process id.
        pidfd: readable once it has ended; the proof of its death.
        control: the supervisor's end of its control socket; None for a process that needs none.
        killed: whether it was ended with SIGKILL; known once it is buried.

    Args:
        module: what to run; it finds its own end of the control socket in ``--control-fd``.
    """

    def __init__(
        self,
        title: str,
        module: str,
        arguments: list[str],
        environment: Mapping[str, str],
        pass_fds: tuple[int, ...] = (),
        *,
        controlled: bool = True,
    ) -> None:
        self.title = title
        self.killed = False
        self.control: ControlSocket | None = None
        with ExitStack() as stack:
            if controlled:
                ours, theirs = socket.socketpair()
                stack.enter_context(theirs)
                self.control = ControlSocket(ours)
                arguments = ["--control-fd", str(theirs.fileno()), *arguments]
                pass_fds = (theirs.fileno(), *pass_fds)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                env=os.environ | dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def tell(self, **fields: Any) -> None:
        """Send it a message; nothing happens where it is gone."""
        if self.control is not None:
            self.control.send(**fields)

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens where it has ended."""
        self._process.send_signal(number)

    def bury(self) -> str:
        """Wait for its end and say in words how it came."""
        status = self._process.wait()
        self.killed = status == -signal.SIGKILL
        os.close(self.pidfd)
        if self.control is not None:
            self.control.close()
        return ending(status)


def ending(status: int) -> str:
    """How a process ended, from `subprocess`'s return code."""
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    hint = " (by hand, or out of memory?)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
