"""Handover: a new engine takes over the listening sockets of a running one.

A connection waits in a listening socket until a process accepts it, and is reset if the last holder
of that socket closes it. Two engines that hold the same socket both accept from it, and either may
close it at any time.

The new engine asks for a handover at the control socket of the old one. It gets a report whose
lines name the sockets, and the sockets themselves, and keeps the connection. Once it serves it says
so, and the old one stops. If the connection ends before, the old one serves on. The old one ends
the connection when it accepts no more requests.
"""

import array
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ringbatch.engine.supervisor.listener import refuse_new_connections
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.order_client import refusal_reason, supervisor_state
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
"""The most that the kernel passes on at once."""
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
    """A listening socket, or one that holds a port, and its use.

    Attributes:
        use: ``http``, ``grpc``, ``control`` or ``agent``.
    """

    use: str
    socket: socket.socket


class Handover:
    """Handover as the old engine sees it.

    Attributes:
        complete: True if the new engine serves.

    Args:
        loop: the supervisor's.
        sockets: returns the sockets to pass on.
        refusal: why no other engine can take this one's place; empty if one can.
    """

    def __init__(
        self, loop: Loop, sockets: Callable[[], Sequence[PassedSocket]], refusal: str
    ) -> None:
        self.complete = False
        self._loop = loop
        self._sockets = sockets
        self._refusal = refusal
        self._new_engine: socket.socket | None = None

    @property
    def under_way(self) -> bool:
        """True if another engine has the sockets too."""
        return self._new_engine is not None

    def refuses(self, reply: Callable[[Report], None]) -> bool:
        """Return whether changes are refused; log it, and reply so.

        During a handover, the new engine has already read its configuration, and would undo a
        change.
        """
        if self.under_way:
            logger.error("a change is refused: %s", _UNDER_WAY)
            reply(Report("failed", (_UNDER_WAY,)))
        return self.under_way

    def begin(self, connection: socket.socket) -> None:
        """Pass the sockets to another engine, over a connection that belongs to this object now."""
        sockets, refusal = self._sockets(), self._refusal
        if self._new_engine is not None:
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
        self._new_engine = connection
        self._loop.watch(connection, self._on_reply, self.end)

    def _on_reply(self) -> None:
        new_engine = self._new_engine
        assert new_engine is not None, "nobody else is watched"
        try:
            reply = new_engine.recv(len(_SERVES))
        except OSError:
            reply = b""
        self.complete = reply == _SERVES
        if self.complete:
            self._loop.forget(new_engine)
        else:
            logger.warning("the engine that was to serve in this one's stead is gone")
            self.end()

    def end(self) -> None:
        """End the handover; the closed connection shows the new engine that it serves alone."""
        if self._new_engine is not None:
            self._loop.forget(self._new_engine)
            self._new_engine.close()
            self._new_engine = None


class OldEngine:
    """The old engine of a handover, as the new one sees it.

    Attributes:
        pid: of its supervisor.
        limit_ns: when the new engine must serve at the latest, on the monotonic clock.
        serves: True if the old engine still serves.

    Args:
        engine: its name, or the process id of its supervisor.
        timeout_s: the time limit for the new engine's start.

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
        except TimeoutError:
            self._connection.close()
            state, _ = supervisor_state(name)
            raise StartupError(
                f"process {self.pid} has not answered within {_ANSWERS_WITHIN_S:g} s: {state}"
            ) from None
        except OSError as error:
            self._connection.close()
            why = refusal_reason(name, error)
            raise StartupError(f"the engine takes no orders: {why}") from None
        sockets = [socket.socket(fileno=fd) for fd in fds]
        report = read_report(line) or Report("failed", ("it ended meanwhile",))
        if report.end != "done" or len(report.lines) != len(sockets):
            self._connection.close()
            raise StartupError(f"process {self.pid} cannot be replaced: {'; '.join(report.lines)}")
        self._sockets = [PassedSocket(*pair) for pair in zip(report.lines, sockets, strict=True)]

    def take(self, use: str, fits: Callable[[socket.socket], bool]) -> list[socket.socket]:
        """Return the sockets for a use that are fit for it; they belong to the caller now."""
        taken = [one for one in self._sockets if one.use == use and fits(one.socket)]
        self._sockets = [one for one in self._sockets if one not in taken]
        return [one.socket for one in taken]

    def expect_in_time(self) -> None:
        """Check that there is time left.

        Raises:
            StartupError: there is none.
        """
        if time.monotonic_ns() >= self.limit_ns:
            raise StartupError(f"not ready within {self._timeout_s:g} s")

    def replace(self, wait: Wait) -> None:
        """Stop it, because the new engine serves, and wait until it accepts no more requests.

        Args:
            wait: waits for a condition, for a longest time, with an interval of looks.
        """
        self.serves = False
        for _, left in self._sockets:
            # The new engine does not serve at these addresses.
            refuse_new_connections(left)
        with suppress(OSError):
            self._connection.sendall(_SERVES)
            self._connection.setblocking(False)
        # The old one would refuse requests for models that only the new engine has.
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
        """Close the connection; if it was not replaced, it serves on."""
        self._connection.close()
        for _, left in self._sockets:
            left.close()
        self._sockets = []


class Settled:
    """Condition that must stay true for a while, as what has ended may begin again at once.

    Args:
        goes_on: returns True if it has not ended.
    """

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on
        self._looks = 0

    def holds(self) -> bool:
        """Look once more, and return whether the condition has held for long enough."""
        self._looks = 0 if self._goes_on() else self._looks + 1
        return self._looks == _LOOKS


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return a line, and the descriptors that came with it."""
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
