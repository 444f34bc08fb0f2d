"""Rules for the fields of a request (RFC 9113, sections 8.2 and 8.3). Pure."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ringbatch.frontend.http2.frames import PROTOCOL_ERROR, StreamFault

Fields = list[tuple[bytes, bytes]]

NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""A token without capital letters; a pseudo-header has a colon before it."""
_VALUE: Final = re.compile(rb"(?![ \t])[^\0\r\n]*(?<![ \t])")
"""Field value. A single set of characters is matched ten times as fast as alternatives."""
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_OF_ONE_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
FIELD_BYTES: Final = 32
"""Bytes that a field counts beside its name and its value."""
UNKNOWN: Final = -1


class Http2RequestHead(NamedTuple):
    """The head of a request.

    Attributes:
        method, path: values of the pseudo-headers.
        fields: all others but pseudo-headers, in order.
        content_length: of its body; `UNKNOWN` where it does not say.
        size: of all fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts.
        authority: whom the request is for; empty where it does not say.
    """

    method: bytes
    path: bytes
    fields: Fields
    content_length: int
    size: int
    authority: bytes = b""


def request_of(found: Fields) -> Http2RequestHead:
    """Read the head of a request.

    Raises:
        StreamFault: it is malformed.
    """
    pseudo: dict[bytes, bytes] = {}
    fields: Fields = []
    content_length = UNKNOWN
    for name, value in found:
        if not name.startswith(b":"):
            expect_sound(name, value)
            if name == b"content-length":
                known, content_length = content_length, _length(value, content_length)
                if known != UNKNOWN:
                    # Said twice, it would be passed on twice (RFC 9110, section 8.6).
                    continue
            fields.append((name, value))
            if name == b"host" and value != pseudo.setdefault(b":authority", value):
                # Two readers might take it for requests to different servers.
                raise StreamFault(PROTOCOL_ERROR)
        elif fields or name in pseudo or name not in _PSEUDO or not _VALUE.fullmatch(value):
            raise StreamFault(PROTOCOL_ERROR)
        else:
            pseudo[name] = value
    method, path = pseudo.get(b":method"), pseudo.get(b":path")
    if not method or not path or not pseudo.get(b":scheme"):
        raise StreamFault(PROTOCOL_ERROR)
    authority = pseudo.get(b":authority", b"")
    return Http2RequestHead(method, path, fields, content_length, size_of(found), authority)


def expect_trailers(found: Fields) -> None:
    """Return where these may stand behind a body.

    Raises:
        StreamFault: they may not.
    """
    for name, value in found:
        expect_sound(name, value)


def size_of(found: Sequence[tuple[bytes, bytes]]) -> int:
    """Return the size of fields as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""
    return sum(len(name) + len(value) + FIELD_BYTES for name, value in found)


def expect_sound_value(value: bytes) -> None:
    """Check that a field with a sound name may have a value.

    Raises:
        StreamFault: no field may have it.
    """
    if not _VALUE.fullmatch(value):
        raise StreamFault(PROTOCOL_ERROR)


def expect_sound(name: bytes, value: bytes) -> None:
    """Check that a field may stand in a request, behind the pseudo-headers.

    Raises:
        StreamFault: no request may have it there.
    """
    if (
        not NAME.fullmatch(name)
        or not _VALUE.fullmatch(value)
        or name in _OF_ONE_CONNECTION
        or (name == b"te" and value.lower() != b"trailers")
    ):
        raise StreamFault(PROTOCOL_ERROR)


def _length(value: bytes, before: int) -> int:
    if not _LENGTH.fullmatch(value) or before not in (UNKNOWN, int(value)):
        raise StreamFault(PROTOCOL_ERROR)
    return int(value)
