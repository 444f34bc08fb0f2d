"""Handover: a new engine takes over the listening sockets of a running one.

A connection waits in a listening socket until somebody accepts it, and is reset where the last who
holds that socket closes it. Two engines that hold the same one both accept from it, and either may
let go of it at any time.

The engine that is to serve asks for a handover at the control socket of the one that serves. It
gets a report whose lines name the sockets, and the sockets themselves, and keeps the connection.
Once it serves it says so, and the other one stops; where the connection ends before, nothing was.
The other one ends the connection when it takes nothing more.
"""

import array
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ringbatch.engine.supervisor.listener import close_to_newcomers
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.shm.engines import of_any_version
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Order,
    Report,
    order_line,
    read_report,
    report_line,
    socket_path,
)
from ringbatch.shm.shm_objects import engine_and_pid

logger = logging.getLogger("ringbatch.supervisor")

MAX_SOCKETS: Final = 253
"""That the kernel passes on at once."""
UNDER_SYSTEMD: Final = (
    "systemd runs it, and would take its end for that of the service; restart its unit instead, "
    "whose sockets keep connections meanwhile"
)
_UNDER_WAY: Final = (
    "another engine is about to take this one's place; try again once it serves, or has given up"
)
_SERVES: Final = b"serves\n"
_ANSWERS_WITHIN_S: Final = 10.0
_GIVES_WAY_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.01
_LOOKS: Final = 3

Wait = Callable[[Callable[[], bool], float, float], None]


class PassedSocket(NamedTuple):
    """A listening socket, or one that holds a port, and what it is for.

    Attributes:
        use: ``http``, ``grpc``, ``control`` or ``agent``.
    """

    use: str
    socket: socket.socket


class Handover:
    """What an engine that serves knows of the one that is to serve in its stead.

    Attributes:
        complete: whether that one serves.

    Args:
        loop: the supervisor's.
        sockets: that are passed on.
        refusal: why no other engine can take this one's place; empty where it can.
    """

    def __init__(
        self, loop: Loop, sockets: Callable[[], Sequence[PassedSocket]], refusal: str
    ) -> None:
        self.complete = False
        self._loop = loop
        self._sockets = sockets
        self._refusal = refusal
        self._successor: socket.socket | None = None

    @property
    def under_way(self) -> bool:
        """Whether another engine has the sockets too."""
        return self._successor is not None

    def refuses(self, reply: Callable[[Report], None]) -> bool:
        """Whether nothing is changed any more, which is replied then: the other engine has read its
        configuration already, and would take the change back."""
        if self.under_way:
            reply(Report("failed", (_UNDER_WAY,)))
        return self.under_way

    def begin(self, connection: socket.socket) -> None:
        """Another engine asks for the sockets, over a connection that is this object's now."""
        sockets, refusal = self._sockets(), self._refusal
        if self._successor is not None:
            refusal = "another engine is about to take its place"
        if len(sockets) > MAX_SOCKETS:
            refusal = f"its {len(sockets)} sockets are more than can be passed on"
        line = report_line(Report("done", tuple(use for use, _ in sockets)))
        try:
            if refusal:
                connection.send(report_line(Report("failed", (refusal,))))
            else:
                socket.send_fds(connection, [line], [one.fileno() for _, one in sockets])
        except OSError:
            refusal = "it is gone"
        if refusal:
            connection.close()
            return
        logger.info("another engine starts, to serve in this one's stead")
        self._successor = connection
        self._loop.watch(connection, self._hear, self.end)

    def _hear(self) -> None:
        successor = self._successor
        assert successor is not None, "nobody else is watched"
        try:
            said = successor.recv(len(_SERVES))
        except OSError:
            said = b""
        self.complete = said == _SERVES
        if self.complete:
            self._loop.forget(successor)
        else:
            logger.warning("the engine that was to serve in this one's stead is gone")
            self.end()

    def end(self) -> None:
        """Wait for no other engine any more; the one that serves knows by that that it is alone."""
        if self._successor is not None:
            self._loop.forget(self._successor)
            self._successor.close()
            self._successor = None


class OldEngine:
    """The engine that serves, for the one that is to serve in its stead.

    Attributes:
        pid: of its supervisor.
        limit_ns: until when the other one must serve, on the monotonic clock.
        serves: whether it is still the one that serves.

    Args:
        engine: its name, or the process id of its supervisor.
        timeout_s: what the other one's start may take.

    Raises:
        StartupError: there is no such engine, or it cannot be replaced; the text says why.
    """

    def __init__(self, engine: str | int, timeout_s: float) -> None:
        self.limit_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self.serves = True
        self._timeout_s = timeout_s
        name = of_any_version(engine)
        self.pid = engine_and_pid(name)[1]
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connection.settimeout(_ANSWERS_WITHIN_S)
            self._connection.connect(socket_path(name))
            self._connection.sendall(order_line(Order("handover", None)))
            line, fds = _received(self._connection)
        except OSError as error:
            self._connection.close()
            reason = error.strerror or str(error)
            raise StartupError(f"process {self.pid} takes no orders: {reason}") from None
        sockets = [socket.socket(fileno=fd) for fd in fds]
        report = read_report(line) or Report("failed", ("it ended meanwhile",))
        if report.end != "done" or len(report.lines) != len(sockets):
            self._connection.close()
            raise StartupError(f"process {self.pid} cannot be replaced: {'; '.join(report.lines)}")
        self._sockets = [PassedSocket(*pair) for pair in zip(report.lines, sockets, strict=True)]

    def take(self, use: str, fits: Callable[[socket.socket], bool]) -> list[socket.socket]:
        """The sockets for a use that are fit for it; they are the caller's from now on."""
        taken = [one for one in self._sockets if one.use == use and fits(one.socket)]
        self._sockets = [one for one in self._sockets if one not in taken]
        return [one.socket for one in taken]

    def expect_in_time(self) -> None:
        """Return where there is time left.

        Raises:
            StartupError: there is none.
        """
        if time.monotonic_ns() >= self.limit_ns:
            raise StartupError(f"not ready within {self._timeout_s:g} s")

    def replace(self, wait: Wait) -> None:
        """Have it stop, because another serves in its stead, and wait until it takes nothing more.

        Args:
            wait: for what a function says, so many seconds at most, looking every so many.
        """
        self.serves = False
        for _, left in self._sockets:
            # At these addresses nobody will serve any more.
            close_to_newcomers(left)
        with suppress(OSError):
            self._connection.sendall(_SERVES)
            self._connection.setblocking(False)
        # Who asks for what only the new engine has would be refused there.
        wait(self._gives_way, _GIVES_WAY_WITHIN_S, _LOOK_EVERY_S)
        self.close()

    def _gives_way(self) -> bool:
        try:
            return not self._connection.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Let go of it; it goes on where it was not replaced."""
        self._connection.close()
        for _, left in self._sockets:
            left.close()
        self._sockets = []


class Settled:
    """Whether something is over that may begin again at once, and so is looked at repeatedly.

    Args:
        goes_on: whether it is not over now.
    """

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on
        self._looks = 0

    def holds(self) -> bool:
        """Look once more."""
        self._looks = 0 if self._goes_on() else self._looks + 1
        return self._looks == _LOOKS


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A line, and the descriptors that came with it."""
    line = b""
    fds: list[int] = []
    room = socket.CMSG_LEN(MAX_SOCKETS * array.array("i").itemsize)
    while not line.endswith(b"\n"):
        data, more, _, _ = connection.recvmsg(MAX_LINE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in more:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                fds += found
        if not data:
            break
        line += data
    return line, fds
