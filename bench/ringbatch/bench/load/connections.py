"""Connections to one server, on each of which one request at a time is under way.

Where none is free, one is opened, up to a limit, beyond which requests wait for one.
"""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ringbatch.bench.load.answers import BadAnswer
from ringbatch.bench.load.exchange import Exchange
from ringbatch.bench.load.outcome import BROKEN

_RECEIVED_BYTES: Final = 1 << 18
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT

Ended = Callable[[int, int, int, bytes], None]
"""Takes the number of a request, its status, when it ended, and the body of its answer."""


class Poll(Protocol):
    """Interface of a poller for readable and writable connections, as `select.epoll` is."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...


class _Connection:
    __slots__ = ("begun", "exchange", "fd", "number", "rest", "sock")

    def __init__(self, sock: socket.socket, exchange: Exchange) -> None:
        self.sock = sock
        self.exchange = exchange
        self.fd = sock.fileno()
        self.number = -1
        """Number of the request under way; -1 for none."""
        self.rest = exchange.greeting()
        self.begun = False
        """True once the connection has been made."""


class Connections:
    """Connections to one server.

    Args:
        address: of the server, as connect takes it.
        exchange: makes one side of a new connection.
        limit: of connections that may be open at once.
        poll: tells which can be read or written.
        clock_ns: monotonic.
        ended: is told of the end of each request that was started.
        keeps_answers: whether it is given their bodies, else empty ones.
        source: own address of all connections; empty for the one that the kernel chooses.

    Attributes:
        problems: what went wrong with connections, in words, and how often.
        held_back: requests that had to wait for a connection.
        most: connections that were open at once.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        exchange: Callable[[], Exchange],
        *,
        limit: int,
        poll: Poll,
        clock_ns: Callable[[], int],
        ended: Ended,
        keeps_answers: bool = False,
        source: str = "",
    ) -> None:
        self._address, self._exchange, self._source = address, exchange, source
        self._family = _family_of(address)
        self._limit = limit
        self._poll, self._clock_ns, self._ended = poll, clock_ns, ended
        self._keeps_answers = keeps_answers
        # One for all: recv() would map so much memory anew for every answer.
        self._received = memoryview(bytearray(_RECEIVED_BYTES))
        self._open: dict[int, _Connection] = {}
        self._free: list[_Connection] = []
        self._waiting: deque[tuple[int, int]] = deque()
        self.problems: dict[str, int] = {}
        self.held_back = 0
        self.most = 0

    @property
    def under_way(self) -> list[int]:
        """The requests that were started and have not ended."""
        sent = [c.number for c in self._open.values() if c.number >= 0]
        return [*sent, *(number for number, _ in self._waiting)]

    def warm(self, connections: int) -> None:
        """Open connections before the first request is due."""
        for _ in range(min(connections, self._limit)):
            if (made := self._connect()) is not None:
                self._free.append(made)

    def start(self, number: int, which: int) -> bool:
        """Send one of the requests, or let it wait for a connection.

        Args:
            number: under which its end is told.
            which: of the messages.

        Returns:
            Whether its end will be told; not so where no connection can be made.
        """
        connection: _Connection | None
        if self._free:
            connection = self._free.pop()
        elif len(self._open) < self._limit:
            connection = self._connect()
            if connection is None:
                return False
        else:
            self.held_back += 1
            self._waiting.append((number, which))
            return True
        connection.number = number
        self._put(connection, connection.exchange.ask(which, connection.number))
        return True

    def take(self, fd: int, events: int) -> None:
        """Read and write on a connection that the poll reported."""
        connection = self._open.get(fd)
        if connection is None:
            return
        if events & _OUT and not self._go_on_sending(connection):
            return
        if events & ~_OUT:
            self._receive(connection)

    def close(self) -> None:
        """Close all of them; the ends of requests under way are not told."""
        self._waiting.clear()
        for connection in [*self._open.values()]:
            self._drop(connection)

    def _put(self, connection: _Connection, message: bytes) -> None:
        if not connection.begun or connection.rest:
            connection.rest += message
            return
        try:
            sent = connection.sock.send(message)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._break(connection, error.strerror or str(error))
            return
        if sent < len(message):
            connection.rest = message[sent:]
            self._poll.modify(connection.fd, _IN | _OUT)

    def _go_on_sending(self, connection: _Connection) -> bool:
        """Send what is left; False where the connection has broken."""
        if not connection.begun:
            if code := connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._break(connection, os.strerror(code))
                return False
            connection.begun = True
        if connection.rest:
            try:
                sent = connection.sock.send(connection.rest)
            except BlockingIOError:
                return True
            except OSError as error:
                self._break(connection, error.strerror or str(error))
                return False
            connection.rest = connection.rest[sent:]
        if not connection.rest:
            self._poll.modify(connection.fd, _IN)
        return True

    def _receive(self, connection: _Connection) -> None:
        try:
            size = connection.sock.recv_into(self._received)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(connection, error.strerror or str(error))
            return
        if not size:
            self._break(connection, "the server closed the connection")
            return
        data = bytes(self._received[:size])
        exchange = connection.exchange
        try:
            status = exchange.take(data)
        except BadAnswer as error:
            self._break(connection, str(error))
            return
        if exchange.reply:
            reply, exchange.reply = exchange.reply, b""
            self._put(connection, reply)
            if connection.fd not in self._open:
                return
        if status is not None:
            # Behind the instants of its parts.
            self._answered(connection, status, self._clock_ns())
        elif exchange.closes and connection.number < 0:
            self._drop(connection)

    def _answered(self, connection: _Connection, status: int, now_ns: int) -> None:
        number = connection.number
        answer = connection.exchange.answer if self._keeps_answers else b""
        connection.number = -1
        if connection.exchange.closes:
            self._drop(connection)
        elif self._waiting:
            connection.number, which = self._waiting.popleft()
            self._put(connection, connection.exchange.ask(which, connection.number))
        else:
            self._free.append(connection)
        # Last: who is told may start another, on this connection if it is free.
        self._ended(number, status, now_ns, answer)

    def _break(self, connection: _Connection, why: str) -> None:
        number, idle = connection.number, connection.number < 0
        self._drop(connection)
        if idle:
            # A server may close what it does not use.
            return
        self._count(why)
        self._start_waiting()
        self._ended(number, BROKEN, self._clock_ns(), b"")

    def _start_waiting(self) -> None:
        """Give the place of an ended connection to a waiting request."""
        if self._waiting:
            number, which = self._waiting.popleft()
            if not self.start(number, which):
                self._ended(number, BROKEN, self._clock_ns(), b"")

    def _drop(self, connection: _Connection) -> None:
        del self._open[connection.fd]
        if connection in self._free:
            self._free.remove(connection)
        self._poll.unregister(connection.fd)
        connection.sock.close()

    def _connect(self) -> _Connection | None:
        try:
            sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self._count(error.strerror or str(error))
            return None
        if self._family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._source:
            sock.bind((self._source, 0))
        code = sock.connect_ex(self._address)
        if code not in (0, errno.EINPROGRESS):
            self._count(os.strerror(code))
            sock.close()
            return None
        connection = _Connection(sock, self._exchange())
        self._open[connection.fd] = connection
        self.most = max(self.most, len(self._open))
        self._poll.register(connection.fd, _IN | _OUT)
        return connection

    def _count(self, problem: str) -> None:
        self.problems[problem] = self.problems.get(problem, 0) + 1


def _family_of(address: tuple[str, int] | str) -> socket.AddressFamily:
    if isinstance(address, str):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET
