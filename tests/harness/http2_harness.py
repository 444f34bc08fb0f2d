"""HTTP/2 as a client's bytes, and a server's connection under test without a socket."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from ringbatch.frontend.http2.header_rules import Http2RequestHead
from ringbatch.frontend.http2.header_text import field
from ringbatch.frontend.http2.stream import Stream

GREETING: Final = PREFACE + frame(SETTINGS, 0, 0)
USUAL: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/p"),
    (b":authority", b"x"),
)


class Frame(NamedTuple):
    """Parsed HTTP/2 frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frames_of(data: bytes) -> list[Frame]:
    """Parse whole frames."""
    found, at = [], 0
    while at < len(data):
        word, flags, stream = struct.unpack_from(">IBI", data, at)
        end = at + 9 + (word >> 8)
        found.append(Frame(word & 0xFF, flags, stream, data[at + 9 : end]))
        at = end
    assert at == len(data), "the last one is not whole"
    return found


def block(*more: tuple[bytes, bytes], fields: Sequence[tuple[bytes, bytes]] = USUAL) -> bytes:
    """Return a header block of literals."""
    return b"".join(field(name, value) for name, value in (*fields, *more))


def headers(stream: int, flags: int = 0, data: bytes | None = None) -> bytes:
    """Return the head of a whole request."""
    return frame(HEADERS, END_HEADERS | flags, stream, block() if data is None else data)


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    """Return a piece of a body."""
    return frame(DATA, flags, stream, payload)


def call(stream: int, payload: bytes = b"body") -> bytes:
    """Return a whole request."""
    return headers(stream) + data(stream, payload, END_STREAM)


def settings(**values: int) -> bytes:
    """SETTINGS by names such as `window` and `frame`."""
    numbers = {"table": 1, "push": 2, "streams": 3, "window": 4, "frame": 5, "list": 6}
    pairs = (struct.pack(">HI", numbers[name], value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def widen(stream: int, more: int) -> bytes:
    """Send WINDOW_UPDATE."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


class Served:
    """A connection of a server that has been greeted, and everything it has said."""

    def __init__(self, greeting: bytes = GREETING) -> None:
        self.connection: Connection[Http2RequestHead] = Connection(lambda request: request)
        self.receive(greeting)
        self.opening = self.sent_frames()

    def receive(self, given: bytes) -> list[Stream[Http2RequestHead]]:
        """Return the streams that these bytes change, however many calls that takes."""
        found = self.connection.receive(given)
        while self.connection.behind:
            found += [one for one in self.connection.receive(b"") if one not in found]
        return found

    def sent_frames(self) -> list[Frame]:
        """The frames that are to be sent now."""
        return frames_of(b"".join(self.connection.take_output()))

    def one(self, given: bytes) -> Stream[Http2RequestHead]:
        """Return the only stream on which something happens."""
        (stream,) = self.receive(given)
        return stream

    def refused(self, given: bytes) -> int:
        """The error code with which the connection ends."""
        self.receive(given)
        last = self.sent_frames()[-1]
        assert self.connection.over, "the connection goes on"
        assert last.kind == GOAWAY, last
        return int.from_bytes(last.payload[4:8])

    def reset(self, given: bytes) -> tuple[int, int]:
        """The stream that is reset, and the error code."""
        self.receive(given)
        assert not self.connection.over, "the connection has ended"
        (found,) = [one for one in self.sent_frames() if one.kind == RST_STREAM]
        return found.stream, int.from_bytes(found.payload)


__all__ = [
    "CONTINUATION",
    "DATA",
    "END_HEADERS",
    "END_STREAM",
    "GREETING",
    "Frame",
    "Served",
    "block",
    "call",
    "data",
    "frame",
    "frames_of",
    "headers",
    "settings",
    "widen",
]
