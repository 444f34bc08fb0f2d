"""The heads of answers as header blocks. Pure."""

from collections.abc import Iterable
from typing import Final

from ringbatch.frontend.http2.header_text import STATUS_200, field, field_name, value_after

_STATUS: Final = field_name(b":status")
_OF_ONE_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
CONTINUE: Final = value_after(_STATUS, b"100")


def answer_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block, without the fields about an HTTP/1 connection.

    Args:
        status: of the answer.
        headers: the fields, with names in lower case and values without blanks around them.
    """
    first = STATUS_200 if status == 200 else value_after(_STATUS, b"%d" % status)
    return first + b"".join(
        field(name, value) for name, value in headers if name not in _OF_ONE_CONNECTION
    )
