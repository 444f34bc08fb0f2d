"""The heads of answers as header blocks. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from ringbatch.frontend.http2.header_rules import NAME, UNKNOWN
from ringbatch.frontend.http2.header_text import STATUS_200, field, field_name, value_after

_STATUS: Final = field_name(b":status")
_LENGTH: Final = b"content-length"
_OF_ONE_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_CONTROL: Final = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")
"""What uvicorn lets no value have over HTTP/1; three of these are no value's over HTTP/2 either."""
CONTINUE: Final = value_after(_STATUS, b"100")


def answer_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block; what is about a connection of HTTP/1 is left out.

    Args:
        status: of the answer.
        headers: names in any case.

    Raises:
        RuntimeError: a name or a value is none; it has the words that uvicorn has for it.
    """
    first = STATUS_200 if status == 200 else value_after(_STATUS, b"%d" % status)
    # Over HTTP/1 blanks may stand around a value, which are no part of it; here they may not.
    named = ((name.lower(), value.strip(b" \t")) for name, value in headers)
    return first + b"".join(
        _field(name, value) for name, value in named if name not in _OF_ONE_CONNECTION
    )


def body_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Of the body behind such a head; `UNKNOWN` where it does not say.

    Raises:
        RuntimeError: it says several, or what is no number.
    """
    lengths = {value.strip(b" \t") for name, value in headers if name.lower() == _LENGTH}
    if not lengths:
        return UNKNOWN
    length = lengths.pop()
    if lengths or not length.isdigit():
        raise RuntimeError("Invalid Content-Length.")
    return int(length)


def _field(name: bytes, value: bytes) -> bytes:
    if not NAME.fullmatch(name):
        raise RuntimeError("Invalid HTTP header name.")
    if _CONTROL.search(value):
        raise RuntimeError("Invalid HTTP header value.")
    return field(name, value)
