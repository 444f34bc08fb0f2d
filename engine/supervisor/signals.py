"""The signals of the supervisor: those that ask for the end, and SIGHUP, which has two meanings.

Without a terminal SIGHUP asks that the configuration be read again; where there was a terminal that
is gone now, it asks for the end, unless whoever started the engine had SIGHUP ignored, as nohup
does, so that it outlives the terminal. What other servers take for orders, as SIGUSR1 to open logs
anew, is passed over in words: not known, it would end the engine.
"""

import errno
import logging
import os
import signal
import socket
from types import FrameType
from typing import Final

from ringbatch.engine.supervisor.loop import Loop
from ringbatch.shm.host.process import OPERATORS_SIGNALS, pass_over_operators_signals

logger = logging.getLogger("ringbatch.supervisor")

_PASSED_OVER: Final = frozenset(OPERATORS_SIGNALS) - {signal.SIGHUP}


class Signals:
    """What has come so far.

    Attributes:
        received: the numbers of those that ask for the end, in order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._hangups = 0
        outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = has_terminal() and not outlives_terminal

    def catch(self, loop: Loop) -> None:
        """Handle signals from now on; each makes the loop turn."""
        reading, writing = socket.socketpair()
        for end in (reading, writing):
            end.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())

        def remember(signum: int, _frame: FrameType | None) -> None:
            self.received.append(signum)

        def hang_up(_signum: int, _frame: FrameType | None) -> None:
            self._hangups += 1

        # Whoever started this process may have left it with other ways, which are inherited. How
        # a child ended is known only where SIGCHLD is not ignored.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, remember)
        pass_over_operators_signals()
        signal.signal(signal.SIGHUP, hang_up)
        # The writing end is kept alive by this reference.
        self._wakeup = (reading, writing)
        loop.watch(reading, lambda: _tell_of_passed_over(reading.recv(4096)))

    def take_reload(self) -> bool:
        """Whether the configuration is to be read again, by what has come since the last call."""
        if not self._hangups:
            return False
        self._hangups = 0
        if self._had_terminal and not has_terminal():
            self.received.append(signal.SIGHUP)
            return False
        return True


def _tell_of_passed_over(numbers: bytes) -> None:
    """Say of signals that have come whether nothing follows from them.

    Args:
        numbers: as `signal.set_wakeup_fd` has them written, a byte each.
    """
    for number in sorted(_PASSED_OVER.intersection(numbers)):
        logger.warning(
            "%s does nothing here: SIGHUP reads the configuration again, SIGTERM stops",
            signal.Signals(number).name,
        )


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        # Out of descriptors or memory, one cannot tell; to end the engine for that would be worse.
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    os.close(terminal)
    return True
