"""Child process of the supervisor: its start, its messages, its end.

No call here waits for the process.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from ringbatch.engine.process.descendants import kill_session
from ringbatch.engine.process.fork_server import ProcessRequest
from ringbatch.engine.process.role_commands import ToRole
from ringbatch.engine.process.role_events import FROM_FRONTEND, LOST_STATUS, MUTE_STATUS, FromRole
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
"""Variables from a service manager for the supervisor alone, and some that Gunicorn would use."""
_LIMITS: Final = {
    signal.SIGXCPU.value: " (it reached its limit of CPU time: ulimit -t, LimitCPU=)",
    signal.SIGXFSZ.value: " (it reached its limit of a file's size: ulimit -f, LimitFSIZE=)",
}
"""Words for signals by which the kernel enforces a limit."""
_MUTE: Final = (
    " (it could not send the reason; probably the model has closed descriptors of others, as "
    "os.closerange does)"
)


class Death(NamedTuple):
    """End of a process.

    Attributes:
        pid: its former process id.
        words: how it ended, to follow its name in a message.
        killed: True if it was ended from outside: by a SIGKILL that the supervisor did not send, or
            because its actor was gone.
    """

    pid: int
    words: str
    killed: bool


def _opened_pidfd(pid: int) -> int:
    """Return a descriptor of a process; an error of the kernel names the call."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # A sandbox refuses the call; the text alone would not say which.
        raise OSError(error.errno, f"pidfd_open: {error.strerror}") from error


class CannotStart(Exception):
    """Error for a process that cannot be started now; the text says why.

    Attributes:
        errno: the kernel's reason.
    """

    def __init__(self, error: OSError) -> None:
        self.errno = error.errno or 0
        super().__init__(shortage(self.errno, str(error)))


class Child:
    """Running process in its own process group, so that Ctrl-C reaches the supervisor alone.

    Attributes:
        title: its name in `ps` and in messages.
        pid: its process id.
        pidfd: readable once it has ended; the proof of its death.
        channel: the supervisor's end of its control socket; None for a process that needs none.

    Args:
        module: what to run; it finds its own end of the control socket in ``--control-fd``.
        vocabulary: the messages that it may send.
        first_message: the first message to it, if there is one.
        own_session: as of `ProcessRequest`.
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
        first_message: ToRole | None = None,
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
                    request = ProcessRequest(
                        module,
                        arguments,
                        inherited | dict(environment),
                        _working_directory(title),
                        pass_fds,
                        own_session,
                    )
                    self._process = launch(request)
                self.pid = self._process.pid
                undo.callback(self._end_at_once)
                self.pidfd = _opened_pidfd(self.pid)
                undo.callback(os.close, self.pidfd)
            except OSError as error:
                raise CannotStart(error) from error
            if first_message is not None:
                self.send(first_message)
            undo.pop_all()

    def send(self, message: ToRole) -> None:
        """Send it a message; do nothing if it is gone, and end it if it does not read."""
        if self.channel is not None:
            try:
                self.channel.send(message)
            except Unread:
                logger.error(
                    "%s [%d] does not read its messages, and is ended", *self._name_and_pid
                )
                self.kill(signal.SIGKILL)

    def receive(self) -> list[FromRole] | None:
        """Return its new messages; None once it sends no more.

        Raises:
            MalformedMessage: a message is not one that it may send.
        """
        assert self.channel is not None, "a process without a control socket says nothing"
        lines = self.channel.receive()
        return None if lines is None else [self._vocabulary.decode(line) for line in lines]

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal, or SIGKILL with all its descendants; do nothing if it is gone."""
        if number == signal.SIGKILL:
            self._killed = True
            kill_session(self.pid)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def unread_messages(self) -> list[FromRole]:
        """Return its messages that are still unread, once it has ended.

        Raises:
            MalformedMessage: a message is not one that it may send.
        """
        lines = [] if self.channel is None else self.channel.unread_lines()
        return [self._vocabulary.decode(line) for line in lines]

    def reap(self, why_killed: Callable[[], str] = str) -> Death:
        """End the descendants of an ended process, and return how it ended.

        Args:
            why_killed: returns the words behind a SIGKILL from outside; empty if there are none.
        """
        kill_session(self.pid)
        # If a debugger holds it, its status is not known yet, and is not waited for.
        status = self._process.poll()
        os.close(self.pidfd)
        if self.channel is not None:
            self.channel.close()
        killed = status == -signal.SIGKILL and not self._killed
        why = why_killed() if killed else ""
        words = "ended" if status is None else ending(status, why)
        return Death(self.pid, words, killed or status == LOST_STATUS)

    def _end_at_once(self) -> None:
        """Kill a process that was started and cannot be watched; the next start reaps it."""
        kill_session(self.pid)
        self._process.poll()

    @property
    def _name_and_pid(self) -> tuple[str, int]:
        return self.title, self.pid


def _working_directory(title: str) -> str | None:
    """Return the working directory of a new process; None for this process's.

    If an installer has removed that directory, it is the root: Gunicorn and many libraries fail in
    a directory that is gone.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        logger.warning("the working directory is gone; %s starts in /", title)
        return "/"
    return None


def ending(status: int, why_killed: str = "") -> str:
    """Return a phrase for how a process ended.

    Args:
        status: the return code, as `subprocess` has it.
        why_killed: the words behind a SIGKILL; empty if nothing is known.
    """
    if status >= 0:
        return f"ended with status {status}" + _MUTE * (status == MUTE_STATUS)
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a realtime signal other than the first and the last
        name = f"signal {-status}"
    hint = _LIMITS.get(-status, "")
    if -status == signal.SIGKILL:
        hint = why_killed or " (by hand, or out of memory?)"
    return f"was killed by {name}{hint}"
