"""HTTP/2 as bytes, for clients that do what no library does: begin requests and not go on."""

import socket
import struct
import time
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW: Final = 4
NO_WINDOW: Final = struct.pack(">HI", _INITIAL_WINDOW, 0)
"""A setting: streams begin without room for answers."""
_FRAME_BYTES: Final = 1 << 14
_WINDOW_BYTES: Final = (1 << 16) - 1


class Http2:
    """A connection that speaks just enough of HTTP/2 to call a method over gRPC, and to stop at any
    byte of it.

    Attributes:
        ended: the streams that the server has ended, or all that were open where it has closed the
            connection.
        closed: whether it has.
        headers: blocks of them, as they came.

    Args:
        port: of the server.
        settings: of its own, with which it greets.
    """

    def __init__(self, port: int, settings: bytes = b"") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._buffer = b""
        self._next = 1
        self._initial = _WINDOW_BYTES
        self._window = _WINDOW_BYTES
        self._windows: dict[int, int] = {}
        self.ended: set[int] = set()
        self.closed = False
        self.headers: list[bytes] = []
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def begin(self, method: str, *metadata: tuple[str, str]) -> int:
        """Begin a call; the number of its stream."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(_literal(name, value) for name, value in (*fields.items(), *metadata))
        self._send(_frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    def send(self, stream: int, data: bytes) -> None:
        """Send data of a stream, within the windows that there are already."""
        self._windows[stream] -= len(data)
        self._window -= len(data)
        assert min(self._windows[stream], self._window) >= 0, "it was to be little"
        self._send(_frame(_DATA, 0, stream, data))

    def end(self, stream: int) -> None:
        """Say that no more data of a stream come."""
        self._send(_frame(_DATA, _END_STREAM, stream, b""))

    def pour(self, streams: Collection[int], size: int, limit_s: float) -> int:
        """Send so many bytes on each of some streams, as the server makes room for them; how many
        they were together when all were sent, or had ended, or the time was over."""
        left = dict.fromkeys(streams, size)
        until = time.monotonic() + limit_s
        while left and not self.closed and time.monotonic() < until:
            moved = False
            for stream in list(left):
                room = min(left[stream], self._window, self._windows[stream], _FRAME_BYTES)
                if stream in self.ended or not left[stream]:
                    del left[stream]
                elif room > 0:
                    self.send(stream, bytes(room))
                    left[stream] -= room
                    moved = True
            self.take(0 if moved else 0.1)
        return size * len(streams) - sum(left.values())

    def take(self, wait_s: float) -> bool:
        """Take in what the server has sent; False where it has sent nothing for so long."""
        self._socket.settimeout(wait_s or 0.0)
        try:
            data = self._socket.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return False
        except ConnectionError:
            data = b""
        finally:
            self._socket.settimeout(None)
        if not data:
            self.closed = True
            self.ended |= self._windows.keys()
            return False
        self._buffer += data
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3])
            if len(self._buffer) < 9 + size:
                break
            kind, flags = self._buffer[3:5]
            stream = int.from_bytes(self._buffer[5:9]) & 0x7FFFFFFF
            body, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._frame(kind, flags, stream, body)
        return True

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for key, value in struct.iter_unpack(">HI", body):
                if key == _INITIAL_WINDOW:
                    for each in self._windows:
                        self._windows[each] += value - self._initial
                    self._initial = value
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(body)
            if stream:
                self._windows[stream] += more
            else:
                self._window += more
        if kind == _HEADERS:
            self.headers.append(body)
        if kind == _RST_STREAM or (kind == _HEADERS and flags & 1):
            self.ended.add(stream)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except ConnectionError:
            self.closed = True
            self.ended |= self._windows.keys()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def _literal(name: str, value: str) -> bytes:
    """A header field of HPACK's plainest kind."""
    return b"".join((b"\0", _text(name), _text(value)))


def _text(text: str) -> bytes:
    assert len(text) < 127, "its length is one byte"
    return bytes((len(text),)) + text.encode()
