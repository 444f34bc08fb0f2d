"""Clients over HTTP/2 that ask without a pause, and leave a connection on GOAWAY.

The library h2 takes GOAWAY for the end of all streams, which it is not; so frames are by hand.
"""

import socket
import threading
import time
from typing import Final

from http2_harness import GREETING, block, data, frame, headers, widen

_PATH: Final = b"/v1/models/echo:predict"
_FIELDS: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", _PATH),
    (b":authority", b"here"),
)
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK = _END = 1
_OK: Final = b"\x88"


class Left(Exception):
    """The server serves no further request on this connection."""


class Raw:
    """A connection with one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.settimeout(60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._next = 1
        self._last: int | None = None
        self._socket.sendall(GREETING)

    def ask(self, value: int) -> bytes:
        """The body of an answer with status 200.

        Raises:
            Left: the request is not served here.
            OSError: the connection has ended.
        """
        if self._last is not None:
            raise Left
        stream, self._next = self._next, self._next + 2
        body = b'{"instances":[%d]}' % value
        length = (b"content-length", b"%d" % len(body))
        head = headers(stream, data=block(length, fields=_FIELDS))
        self._socket.sendall(head + data(stream, body, _END))
        found = b""
        while True:
            kind, flags, number, payload = self._frame()
            if kind == _SETTINGS and not flags & _ACK:
                self._socket.sendall(frame(_SETTINGS, _ACK, 0))
            elif kind == _PING and not flags & _ACK:
                self._socket.sendall(frame(_PING, _ACK, 0, payload))
            elif kind == _GOAWAY:
                self._last = int.from_bytes(payload[:4], "big")
                if self._last < stream:
                    raise Left
            elif number == stream and kind == _RST_STREAM:
                raise AssertionError(f"reset: {payload!r}")
            elif number == stream and kind == _HEADERS:
                assert payload.startswith(_OK), payload
            elif number == stream and kind == _DATA:
                found += payload
                if payload:
                    self._socket.sendall(widen(0, len(payload)))
                if flags & _END:
                    return found

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the connection has ended")
            self._buffer += more
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found


class Load:
    """Connections on which requests are made until told to stop, or until nobody listens.

    Args:
        port: of the server.
        connections: number of connections.
        pause_s: of each between an answer and its next request.

    Attributes:
        answered: number of right answers.
        refused: clients that could not connect any more, and ended.
        failures: in words.
    """

    def __init__(self, port: int, connections: int, pause_s: float = 0.0) -> None:
        self.answered = 0
        self.refused = 0
        self.failures: list[str] = []
        self._port = port
        self._pause_s = pause_s
        self._going = True
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._going = False
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        value = number * 1_000_000
        while self._going:
            try:
                connection = Raw(self._port)
            except ConnectionRefusedError:
                with self._lock:
                    self.refused += 1
                return
            try:
                while self._going:
                    value += 1
                    answer = connection.ask(value)
                    assert b"[%d]" % value in answer, answer
                    with self._lock:
                        self.answered += 1
                    time.sleep(self._pause_s)
            except Left:
                pass
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()
