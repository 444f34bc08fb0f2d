"""Framing of request heads: where one ends, and how long it may be. Pure."""

import re
from typing import Final

START: Final = b"POST /v"
"""Begin of a head of the fast lane."""
END: Final = b"\r\n\r\n"
"""End of every head."""
MAX_HEAD_BYTES: Final = 1 << 16
HEAD_TOO_LONG: Final = f"the head is longer than {MAX_HEAD_BYTES} bytes"
MAX_HEADERS: Final = 256
"""Most headers of one request: a line of five bytes becomes objects of 150."""
_UNCLEAR: Final = b"PR"
"""PROPFIND or HTTP/2's greeting."""
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")


def head_size(begun: bytearray, seen_bytes: int) -> int | None:
    """Return the size of a head that has begun to come.

    Args:
        begun: the bytes so far, of it and behind it.
        seen_bytes: how many of these were there at the last look.

    Returns:
        0 while it has no end; None if it cannot be one of the fast lane's any more, so that
        httptools may say at once what is wrong.
    """
    # The bytes seen so far hold no whole end of a head, but may hold the beginning of one.
    end = begun.find(END, max(seen_bytes + 1 - len(END), 0), MAX_HEAD_BYTES)
    if end >= 0:
        return end + len(END)
    if begun.startswith(START[: len(begun)]) and not _BARE_LF.search(begun, seen_bytes):
        return 0
    return 0 if begun == _UNCLEAR else None


def has_plain_lines(text: bytes) -> bool:
    """Return whether all lines end with CRLF, none is folded, and one empty line ends them."""
    lines = text.count(b"\r\n")
    return (
        text.endswith(END)
        and text.find(END) == len(text) - len(END)
        and text.count(b"\n") == lines == text.count(b"\r")
        and b"\r\n " not in text
        and b"\r\n\t" not in text
    )
