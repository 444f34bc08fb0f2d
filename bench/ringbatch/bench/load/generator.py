"""One generator: a loop that sends what is due, takes answers, and sleeps until either comes.

Every request has a connection to itself until it is answered; where none is free, one is opened, up
to a limit, beyond which requests wait, and their time counts. Nothing is sent late because the
server is slow. How late the loop itself came to a request is kept apart, as its lag.
"""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from ringbatch.bench.load.answers import BadAnswer
from ringbatch.bench.load.exchange import Exchange
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, Outcome

_CHUNK: Final = 262144
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_UNSENT: Final = -3
_AT_ONCE: Final = 64
"""Requests that are sent before answers are looked for again."""
_PROBLEMS_MAX: Final = 1000
"""After so many a closed loop gives up: a server that refuses at once would be asked forever."""


class Poll(Protocol):
    """What tells that a connection can be read or written, as `select.epoll` does."""

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
        """Of the request under way; -1 for none."""
        self.rest = exchange.greeting()
        self.begun = False
        """Whether the connection has been made."""


class Generator:
    """Sends requests when they are due.

    Args:
        address: of the server, as connect takes it.
        exchange: makes one side of a new connection.
        messages: how many different requests there are.
        due_ns: when, from the begin of the run, in order; none for a closed loop.
        first: of the requests, the one that is sent first.
        connections: that may be open at once.
        poll: tells which can be read or written.
        clock_ns: monotonic.
        begin_ns: of the run, by that clock.
    """

    def __init__(
        self,
        address: tuple[str, int],
        exchange: Callable[[], Exchange],
        messages: int,
        due_ns: Sequence[int],
        *,
        first: int,
        connections: int,
        poll: Poll,
        clock_ns: Callable[[], int],
        begin_ns: int,
    ) -> None:
        self._address = address
        self._exchange, self._messages = exchange, messages
        self._first = first
        self._limit = connections
        self._poll, self._clock_ns, self._begin_ns = poll, clock_ns, begin_ns
        self._due_ns = list(due_ns)
        self._took_ns = [0] * len(self._due_ns)
        self._lag_ns = [0] * len(self._due_ns)
        self._statuses = [_UNSENT] * len(self._due_ns)
        self._next = 0
        self._open: dict[int, _Connection] = {}
        self._free: list[_Connection] = []
        self._waiting: deque[int] = deque()
        self._pending = 0
        self._held_back = 0
        self._most = 0
        self._closed_until_ns = 0
        self._problems: dict[str, int] = {}

    @property
    def finished(self) -> bool:
        """Whether everything was sent and has ended."""
        return not self._pending and self._next == len(self._due_ns)

    def warm(self, connections: int) -> None:
        """Open connections before the first request is due."""
        for _ in range(min(connections, self._limit)):
            if (made := self._connect()) is not None:
                self._free.append(made)

    def begin_closed(self, connections: int, until_ns: int) -> None:
        """Send from so many connections, from each the next as soon as it has an answer."""
        self._closed_until_ns = until_ns
        for _ in range(connections):
            self._send_next()

    def send_due(self) -> int | None:
        """Send what is due by now; nanoseconds until the next is, None where there is none."""
        due, count = self._due_ns, len(self._due_ns)
        now = self._clock_ns() - self._begin_ns
        most = self._next + _AT_ONCE
        while self._next < count:
            number = self._next
            if number == most:
                return 0
            if due[number] > now:
                now = self._clock_ns() - self._begin_ns
                if due[number] > now:
                    return due[number] - now
            self._next += 1
            self._lag_ns[number] = now - due[number]
            self._pending += 1
            self._start(number)
        return None

    def take(self, fd: int, events: int) -> None:
        """Do what can be done with a connection of which the poll told."""
        connection = self._open.get(fd)
        if connection is None:
            return
        if events & _OUT and not self._go_on_sending(connection):
            return
        if events & ~_OUT:
            self._receive(connection)

    def outcome(self, seconds: float) -> Outcome:
        """End the run: close connections, and say what became of the requests."""
        now = self._clock_ns() - self._begin_ns
        for number in [c.number for c in self._open.values() if c.number >= 0] + [*self._waiting]:
            self._end(number, UNANSWERED, now)
        for connection in [*self._open.values()]:
            self._drop(connection)
        sent = [n for n, status in enumerate(self._statuses) if status != _UNSENT]
        return Outcome(
            np.asarray([self._due_ns[n] for n in sent], np.int64),
            np.asarray([self._took_ns[n] for n in sent], np.int64),
            np.asarray([self._lag_ns[n] for n in sent], np.int64),
            np.asarray([self._statuses[n] for n in sent], np.int16),
            seconds,
            self._held_back,
            self._most,
            self._problems,
        )

    def _send_next(self) -> None:
        """In a closed loop: a request that is due now."""
        now = self._clock_ns() - self._begin_ns
        if now >= self._closed_until_ns:
            return
        number = len(self._due_ns)
        self._due_ns.append(now)
        self._took_ns.append(0)
        self._lag_ns.append(0)
        self._statuses.append(_UNSENT)
        self._next += 1
        self._pending += 1
        self._start(number)

    def _start(self, number: int) -> None:
        connection: _Connection | None
        if self._free:
            connection = self._free.pop()
        elif len(self._open) < self._limit:
            connection = self._connect()
            if connection is None:
                self._end(number, BROKEN, self._clock_ns() - self._begin_ns)
                return
        else:
            self._held_back += 1
            self._waiting.append(number)
            return
        self._send(connection, number)

    def _send(self, connection: _Connection, number: int) -> None:
        connection.number = number
        message = connection.exchange.ask((self._first + number) % self._messages)
        self._put(connection, message)

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
            data = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(connection, error.strerror or str(error))
            return
        if not data:
            self._break(connection, "the server closed the connection")
            return
        now = self._clock_ns() - self._begin_ns
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
            self._answered(connection, status, now)
        elif exchange.closes and connection.number < 0:
            self._drop(connection)

    def _answered(self, connection: _Connection, status: int, now_ns: int) -> None:
        self._end(connection.number, status, now_ns)
        connection.number = -1
        if connection.exchange.closes:
            self._drop(connection)
        elif self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._free.append(connection)
        if self._closed_until_ns:
            self._send_next()

    def _end(self, number: int, status: int, now_ns: int) -> None:
        self._took_ns[number] = now_ns - self._due_ns[number]
        self._statuses[number] = status
        self._pending -= 1

    def _break(self, connection: _Connection, why: str) -> None:
        number, idle = connection.number, connection.number < 0
        self._drop(connection)
        if idle:
            # A server may close what it does not use.
            return
        self._problems[why] = self._problems.get(why, 0) + 1
        self._end(number, BROKEN, self._clock_ns() - self._begin_ns)
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self._closed_until_ns and sum(self._problems.values()) < _PROBLEMS_MAX:
            self._send_next()

    def _drop(self, connection: _Connection) -> None:
        del self._open[connection.fd]
        if connection in self._free:
            self._free.remove(connection)
        self._poll.unregister(connection.fd)
        connection.sock.close()

    def _connect(self) -> _Connection | None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            words = error.strerror or str(error)
            self._problems[words] = self._problems.get(words, 0) + 1
            return None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(self._address)
        if code not in (0, errno.EINPROGRESS):
            words = os.strerror(code)
            self._problems[words] = self._problems.get(words, 0) + 1
            sock.close()
            return None
        connection = _Connection(sock, self._exchange())
        self._open[connection.fd] = connection
        self._most = max(self._most, len(self._open))
        self._poll.register(connection.fd, _IN | _OUT)
        return connection
