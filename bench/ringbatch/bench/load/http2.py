"""HTTP/2 as a client needs it that makes the same calls again and again (RFC 9113). Pure."""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ringbatch.bench.load.answers import BadAnswer

FRAME_HEAD_BYTES: Final = 9
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
ACK: Final = 0x1
_PADDED: Final = 0x8
_PRIORITY: Final = 0x20
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_TABLE_SIZE: Final = 1
_ENABLE_PUSH: Final = 2
_INITIAL_WINDOW_SIZE: Final = 4
WINDOW_MAX: Final = 2**31 - 1
WINDOW_FIRST: Final = 65535
"""Initial flow-control window of a connection, and of a stream unless SETTINGS say otherwise."""
DATA_MAX: Final = 16384
"""Every peer takes frames of that size."""
_SETTING: Final = struct.Struct(">HI")
_WORD: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BHBBI")
_FIRST_ENTRY: Final = 62
"""Index of the dynamic table's newest entry (section 2.3.3)."""
_STATIC_NAMES: Final = {":authority": 1, ":path": 4, ":method": 2, ":scheme": 6}


class Kind(IntEnum):
    """Frames that matter here."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Frame(NamedTuple):
    """HTTP/2 frame: type, flags, stream and payload.

    Attributes:
        kind: its type: a `Kind`, or one that is ignored here.
        flags: its flags.
        stream: number of the stream; 0 for the connection.
        payload: without padding and priority.
    """

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: Kind, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame, as bytes."""
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def greeting() -> bytes:
    """Return a client's first bytes: no header table, and room for answers of any size.

    Without a table each header block is complete in itself.
    """
    wishes = ((_HEADER_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_INITIAL_WINDOW_SIZE, WINDOW_MAX))
    settings = b"".join(_SETTING.pack(*wish) for wish in wishes)
    return _PREFACE + frame(Kind.SETTINGS, 0, 0, settings) + more_room(WINDOW_MAX - WINDOW_FIRST)


def more_room(count: int) -> bytes:
    """Return a frame that lets the peer send so many further bytes."""
    return frame(Kind.WINDOW_UPDATE, 0, 0, _WORD.pack(count))


def word(payload: bytes) -> int:
    """Return the number in a frame: an error's code, or the growth of a window."""
    if len(payload) < _WORD.size:
        raise BadAnswer("an HTTP/2 frame that is too short")
    number: int = _WORD.unpack_from(payload)[0]
    return number & 0x7FFFFFFF


def stream_window(payload: bytes) -> int | None:
    """Return a new stream's window by SETTINGS; None if they do not set it."""
    found = None
    for at in range(0, len(payload) - _SETTING.size + 1, _SETTING.size):
        name, value = _SETTING.unpack_from(payload, at)
        if name == _INITIAL_WINDOW_SIZE:
            found = value
    return found


def frames_of(data: bytearray) -> Iterator[Frame]:
    """Take the whole frames out of received data.

    Raises:
        BadAnswer: it is no HTTP/2.
    """
    at = 0
    try:
        while len(data) - at >= FRAME_HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > DATA_MAX:
                raise BadAnswer(f"an answer that is not HTTP/2: {bytes(data[at : at + 40])!r}")
            end = at + FRAME_HEAD_BYTES + size
            if len(data) < end:
                return
            payload = bytes(data[at + FRAME_HEAD_BYTES : end])
            at = end
            yield Frame(kind, flags, stream & 0x7FFFFFFF, _bare(kind, flags, payload))
    finally:
        del data[:at]


def _bare(kind: int, flags: int, payload: bytes) -> bytes:
    if kind in (Kind.DATA, Kind.HEADERS) and flags & _PADDED and payload:
        payload = payload[1 : len(payload) - payload[0]]
    if kind == Kind.HEADERS and flags & _PRIORITY:
        payload = payload[5:]
    return payload


def header_block(fields: Sequence[tuple[str, str]], *, enters: bool = False) -> bytes:
    """Return a header block with the fields as literals (RFC 7541, section 6.2).

    Args:
        fields: names and values.
        enters: whether they enter the peer's table.
    """
    first, bits = (0x40, 6) if enters else (0, 4)
    parts = []
    for name, value in fields:
        index = _STATIC_NAMES.get(name)
        head = _number(first, bits, index) if index else bytes([first]) + _text(name)
        parts.append(head + _text(value))
    return b"".join(parts)


def indices(entries: int) -> bytes:
    """Return a block of indices to the peer's latest entries, oldest first (section 6.1)."""
    return b"".join(_number(0x80, 7, _FIRST_ENTRY + age) for age in reversed(range(entries)))


def _text(text: str) -> bytes:
    data = text.encode("latin-1")
    return _number(0, 7, len(data)) + data


def _number(first: int, bits: int, number: int) -> bytes:
    """Return an integer with a prefix of so many bits."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([first | number])
    number -= most
    found = bytearray([first | most])
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
