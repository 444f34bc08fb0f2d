"""Child process of the supervisor: its start, its messages, its end.

Nothing here waits for it.
"""

import logging
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from ringbatch.engine.process.descendants import kill_session
from ringbatch.engine.process.role_messages import FROM_FRONTEND, LOST_STATUS, FromRole, ToRole
from ringbatch.engine.supervisor.channel import Channel, Unread
from ringbatch.engine.supervisor.launching import Launch, execute
from ringbatch.shm.errors import shortage
from ringbatch.shm.host.messages import Vocabulary

logger = logging.getLogger("ringbatch.supervisor")

_NOT_INHERITED: Final = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
    "GUNICORN_PID",
    "GUNICORN_FD",
)
"""What a service manager says to the supervisor alone, and what Gunicorn would take for its own."""


class Death(NamedTuple):
    """How a process ended.

    Attributes:
        pid: what its process id was.
        words: how, to go on behind its name.
        killed: whether it was ended from outside: with a SIGKILL that the supervisor did not send,
            or because what held its model elsewhere was gone.
    """

    pid: int
    words: str
    killed: bool


class CannotStart(Exception):
    """There is no room for another process now. The text is for people.

    Attributes:
        errno: the kernel's reason.
    """

    def __init__(self, error: OSError) -> None:
        self.errno = error.errno or 0
        super().__init__(shortage(self.errno, str(error)))


class Child:
    """One running process in a process group of its own, so that Ctrl-C reaches the supervisor
    alone.

    Attributes:
        title: what it is called in `ps` and in messages.
        pid: its process id.
        pidfd: readable once it has ended; the proof of its death.
        channel: the supervisor's end of its control socket; None for a process that needs none.

    Args:
        module: what to run; it finds its own end of the control socket in ``--control-fd``.
        vocabulary: what it may say.
        told: the first message to it, if there is one.
        own_session: as of `Launch`.
        launch: makes the process.

    Raises:
        CannotStart: no process can be started now; nothing is left of the attempt.
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
        vocabulary: Vocabulary[FromRole] = FROM_FRONTEND,
        told: ToRole | None = None,
        own_session: bool = True,
        launch: Launch = execute,
    ) -> None:
        self.title = title
        self.channel: Channel | None = None
        self._killed = False
        self._vocabulary = vocabulary
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        with ExitStack() as undo:
            try:
                with ExitStack() as closing:
                    if controlled:
                        ours, theirs = socket.socketpair()
                        undo.callback(ours.close)
                        closing.enter_context(theirs)
                        self.channel = Channel(ours)
                        arguments = ["--control-fd", str(theirs.fileno()), *arguments]
                        pass_fds = (theirs.fileno(), *pass_fds)
                    folder = _working_directory(title)
                    self._process = launch(
                        module,
                        arguments,
                        inherited | dict(environment),
                        folder,
                        pass_fds,
                        own_session=own_session,
                    )
                self.pid = self._process.pid
                undo.callback(self._end_at_once)
                self.pidfd = os.pidfd_open(self.pid)
                undo.callback(os.close, self.pidfd)
            except OSError as error:
                raise CannotStart(error) from error
            if told is not None:
                self.tell(told)
            undo.pop_all()

    def tell(self, message: ToRole) -> None:
        """Send it a message; nothing happens where it is gone, and it is ended where it does not
        read."""
        if self.channel is not None:
            try:
                self.channel.send(message)
            except Unread:
                logger.error("%s [%d] does not read what it is told, and is ended", *self._who)
                self.kill(signal.SIGKILL)

    def hear(self) -> list[FromRole] | None:
        """What it has said since the last time; None once it says nothing more.

        Raises:
            MalformedMessage: it says what it should not.
        """
        assert self.channel is not None, "a process without a control socket says nothing"
        lines = self.channel.receive()
        return None if lines is None else [self._vocabulary.decode(line) for line in lines]

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal, or SIGKILL with all that it has started; nothing happens where it is
        gone."""
        if number == signal.SIGKILL:
            self._killed = True
            kill_session(self.pid)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def last_words(self) -> list[FromRole]:
        """What it has said and was not heard yet, once it has ended.

        Raises:
            MalformedMessage: it said what it should not.
        """
        lines = [] if self.channel is None else self.channel.last_words()
        return [self._vocabulary.decode(line) for line in lines]

    def reap(self) -> Death:
        """Once it has ended: end what it has started, and say how it ended."""
        kill_session(self.pid)
        # Where a debugger holds it, how it ended is not known yet, and nobody waits to know it.
        status = self._process.poll()
        os.close(self.pidfd)
        if self.channel is not None:
            self.channel.close()
        words = "ended" if status is None else ending(status)
        killed = status == -signal.SIGKILL and not self._killed
        return Death(self.pid, words, killed or status == LOST_STATUS)

    def _end_at_once(self) -> None:
        """Where it was started and cannot be watched; whoever is started next waits for it."""
        kill_session(self.pid)
        self._process.poll()

    @property
    def _who(self) -> tuple[str, int]:
        return self.title, self.pid


def _working_directory(title: str) -> str | None:
    """Where a process starts: where this one is, for which None stands, or at the root where that
    was removed, as by whoever installs a new release. Gunicorn starts in no place that is gone, nor
    does much that models import."""
    try:
        os.getcwd()
    except FileNotFoundError:
        logger.warning("the working directory is gone; %s starts in /", title)
        return "/"
    return None


def ending(status: int) -> str:
    """How a process ended, from `subprocess`'s return code."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a realtime signal other than the first and the last
        name = f"signal {-status}"
    hint = " (by hand, or out of memory?)" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
