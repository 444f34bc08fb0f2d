"""Clients that ask again at once: a closed loop in which a refusal is answered by the next request.

Each client asks for one answer after the other, and waits for an answer only so long. Then it stops
reading, leaves its connection open, so that the server does not see it go, and asks again on
another one. One loop over epoll plays all of them, so that it is hardly the limit.
"""

import errno
import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from host.server import HOST

BROKEN: Final = 0
"""Status of an attempt whose connection broke."""
LEFT: Final = -1
"""Status of an attempt that its client waited for in vain."""
_LOOK_S: Final = 0.01
"""Time between two looks for clients that have waited for too long."""
_RECEIVED_BYTES: Final = 1 << 16


class Attempt(NamedTuple):
    """End of one attempt to get an answer.

    Attributes:
        first_s: time from the start of the run to the client's first attempt for this answer.
        asked_s: time from the start of the run to this attempt.
        status: HTTP status, `BROKEN` or `LEFT`.
        took_s: time from the attempt to its end.
        right: whether a status of 200 came with the right answer.
    """

    first_s: float
    asked_s: float
    status: int
    took_s: float
    right: bool


@dataclass(frozen=True)
class Crowd:
    """Attempts of a crowd, and what playing it took.

    Attributes:
        attempts: those that have ended, in this order.
        busy: share of one core that the clients took.
        longest_turn_s: the longest time that a turn of their loop took. By so much an answer may
            seem late.
    """

    attempts: Sequence[Attempt]
    busy: float
    longest_turn_s: float


@dataclass(eq=False)
class _Client:
    number: int
    first_s: float = 0.0
    asked_s: float = 0.0
    sock: socket.socket | None = None
    received: bytes = b""


class _Load:
    def __init__(
        self, port: int, path: str, patience_s: float, *, once: bool, clock_s: Callable[[], float]
    ) -> None:
        self._port, self._path = port, path
        self._patience_s, self._once = patience_s, once
        self._clock_s, self._began_s = clock_s, clock_s()
        self._epoll = select.epoll()
        self._clients: list[_Client] = []
        self._by_fd: dict[int, _Client] = {}
        self._left: list[socket.socket] = []
        self.attempts: list[Attempt] = []
        self.longest_turn_s = 0.0

    def run(self, clients: int, seconds: float) -> None:
        looked_s = now_s = self._now_s()
        while now_s < seconds:
            self._come(clients, now_s)
            ready = self._epoll.poll(_LOOK_S)
            woke_s = self._now_s()
            for fd, events in ready:
                self._take(self._by_fd[fd], events)
            now_s = self._now_s()
            if now_s - looked_s >= _LOOK_S:
                looked_s = now_s
                self._leave(now_s)
            self.longest_turn_s = max(self.longest_turn_s, now_s - woke_s)

    def close(self) -> None:
        self._epoll.close()
        open_ones = [client.sock for client in self._clients if client.sock is not None]
        for sock in [*open_ones, *self._left]:
            sock.close()

    def _now_s(self) -> float:
        return self._clock_s() - self._began_s

    def _come(self, most: int, now_s: float) -> None:
        """Have further clients begin. They come one by one, in the time of one's patience."""
        here = self._clients
        while len(here) < most and len(here) * self._patience_s <= most * now_s:
            here.append(_Client(len(here) + 1))
            self._begin(here[-1])

    def _begin(self, client: _Client) -> None:
        """Have a client ask for another answer."""
        client.first_s = self._now_s()
        self._ask(client)

    def _ask(self, client: _Client) -> None:
        """Send a client's request, on a new connection if it has none."""
        client.asked_s = self._now_s()
        if client.sock is None:
            self._connect(client)
        else:
            self._send(client)

    def _connect(self, client: _Client) -> None:
        client.sock = sock = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex((HOST, self._port))
        assert code in (0, errno.EINPROGRESS), f"no connection: {errno.errorcode[code]}"
        self._by_fd[sock.fileno()] = client
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _send(self, client: _Client) -> None:
        assert client.sock is not None, "it has just been connected, or answered"
        body = json.dumps({"instances": [client.number]}).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        try:
            client.sock.sendall(head.encode() + body)
        except OSError:
            self._broke(client)

    def _take(self, client: _Client, events: int) -> None:
        assert client.sock is not None, "only connections are polled"
        if events & select.EPOLLOUT:
            self._epoll.modify(client.sock.fileno(), select.EPOLLIN)
            self._send(client)
            return
        try:
            data = client.sock.recv(_RECEIVED_BYTES)
        except OSError:
            data = b""
        if not data:
            self._broke(client)
            return
        client.received += data
        head, end, body = client.received.partition(b"\r\n\r\n")
        fields = head.lower()
        if end and len(body) >= int(fields.rpartition(b"content-length: ")[2].split(b"\r\n")[0]):
            client.received = b""
            if b"\r\nconnection: close" in fields:
                self._let_go(client).close()
            self._answered(client, int(head[9:12]), body)

    def _answered(self, client: _Client, status: int, body: bytes) -> None:
        # Small whole numbers are exact in FP32.
        right = status == 200 and json.loads(body)["predictions"] == [2.0 * client.number]
        self._end(client, status, right=right)
        if status == 200:
            self._begin(client)
        else:
            self._ask(client)

    def _broke(self, client: _Client) -> None:
        self._let_go(client).close()
        self._end(client, BROKEN)
        self._ask(client)

    def _leave(self, now_s: float) -> None:
        """Have clients leave whose patience is over."""
        for client in self._clients:
            since_s = client.first_s if self._once else client.asked_s
            if now_s - since_s >= self._patience_s:
                self._left.append(self._let_go(client))
                self._end(client, LEFT)
                if self._once:
                    self._begin(client)
                else:
                    self._ask(client)

    def _let_go(self, client: _Client) -> socket.socket:
        """Take a client's connection away from it."""
        sock, client.sock, client.received = client.sock, None, b""
        assert sock is not None, "a client that waits has a connection"
        self._epoll.unregister(sock.fileno())
        del self._by_fd[sock.fileno()]
        return sock

    def _end(self, client: _Client, status: int, *, right: bool = False) -> None:
        asked_s = client.asked_s
        took_s = self._now_s() - asked_s
        self.attempts.append(Attempt(client.first_s, asked_s, status, took_s, right))


def crowd(
    port: int,
    path: str,
    clients: int,
    patience_s: float,
    seconds: float,
    *,
    once: bool,
    clock_s: Callable[[], float] = time.monotonic,
) -> Crowd:
    """Have a crowd of clients ask for so long.

    Args:
        port: of 127.0.0.1.
        path: of a V1 model that doubles a number.
        clients: their number; they come in the time of their patience.
        patience_s: how long a client waits.
        seconds: the length of the run.
        once: whether a client waits so long for an answer with all attempts together, and then
            gives way to another. If not, it waits so long for each attempt, and never gives up.
        clock_s: the time.
    """
    load = _Load(port, path, patience_s, once=once, clock_s=clock_s)
    used_s = time.process_time()
    try:
        load.run(clients, seconds)
    finally:
        load.close()
    busy = (time.process_time() - used_s) / seconds
    return Crowd(load.attempts, busy, load.longest_turn_s)
