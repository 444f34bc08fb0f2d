"""Frames of HTTP/2 as bytes, and what may be wrong with them (RFC 9113, sections 4, 6 and 7)."""

from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = Struct(">IBI")
"""Length and kind in one word, flags, stream."""
FRAME_HEAD_BYTES: Final = 9

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

MAX_WINDOW: Final = (1 << 31) - 1
LEAST_FRAME_BYTES: Final = 1 << 14
"""So long a frame may be that everybody takes."""
MAX_FRAME_BYTES: Final = (1 << 24) - 1
"""So long one can be."""
FIRST_WINDOW: Final = (1 << 16) - 1
"""Initial flow-control window of a connection, and of its streams before SETTINGS say otherwise."""


class ConnectionFault(Exception):
    """A connection cannot go on.

    Args:
        code: why, as GOAWAY says it.
        text: the same for people.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class StreamFault(Exception):
    """A stream cannot go on; others can.

    Args:
        code: why, as RST_STREAM says it.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a whole frame."""
    return FRAME_HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    """Return SETTINGS with these values, by their numbers."""
    pairs = (
        number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in values.items()
    )
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def goaway_frame(last: int, code: int, text: str) -> bytes:
    """Return a GOAWAY frame: streams after the last are not served."""
    payload = last.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()
    return frame(GOAWAY, 0, 0, payload)


def reset_frame(stream: int, code: int) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def window_frame(stream: int, more: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))
