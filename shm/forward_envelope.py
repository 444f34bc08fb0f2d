"""Requests in the slot of a model that another server runs, reached over KServe's V1.

The payload is the JSON text of the client's instances, and all else of the request that the server
needs. Offsets are bytes from the start of the payload.

    offset      holds
    ----------  ---------------------------------------------------------------------------
    0           8 bytes, little-endian: the length E of the envelope
    8           the envelope's BLAKE2b, 32 bytes
    40          the envelope
    40 + E      the JSON text of a list with one value for each instance

The first 40 bytes are the key: requests share a batch if their envelopes are equal. An envelope
is text of lines that end with LF: the path with its query; a header each, ``name: value``; an empty
line; the body before the list, such as ``{"instances":``. The rest of it is the body behind the
list, such as ``,"signature_name":"a"}``.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

KEY_BYTES: Final = 40
"""Bytes at the start of a payload that decide which requests may share a batch."""

_LENGTH: Final = struct.Struct("<Q")
_DIGEST_BYTES: Final = KEY_BYTES - _LENGTH.size


class BadEnvelope(ValueError):
    """A payload is not what this module describes."""


class Envelope(NamedTuple):
    """An envelope, opened.

    Attributes:
        target: path and query.
        headers: as they go out, each line ended by CRLF.
        opening: the body up to the list.
        closing: the body behind the list.
    """

    target: bytes
    headers: bytes
    opening: bytes
    closing: bytes


def encode_envelope(origin: bytes, opening: bytes, closing: bytes) -> bytes:
    """Return all of a payload that stands before the list.

    Args:
        origin: path with query, and headers, each a line ended by LF.
        opening: the body up to the list; it has no LF.
        closing: the body behind the list.
    """
    envelope = b"%b\n%b\n%b" % (origin, opening, closing)
    digest = blake2b(envelope, digest_size=_DIGEST_BYTES).digest()
    return _LENGTH.pack(len(envelope)) + digest + envelope


def list_start(payload: bytes | memoryview) -> int:
    """Return the offset of the list.

    Raises:
        BadEnvelope: it lies outside of the payload.
    """
    if len(payload) < KEY_BYTES:
        raise BadEnvelope("the payload is shorter than its key")
    (length,) = _LENGTH.unpack_from(payload)
    start: int = KEY_BYTES + length
    if start > len(payload) - 2:
        raise BadEnvelope("the payload is shorter than its envelope")
    return start


def decode_envelope(payload: bytes) -> Envelope:
    """Return the contents of a payload's envelope.

    Raises:
        BadEnvelope: it holds something else.
    """
    envelope = payload[KEY_BYTES : list_start(payload)]
    head, empty, rest = envelope.partition(b"\n\n")
    target, *lines = head.split(b"\n")
    opening, end, closing = rest.partition(b"\n")
    if not empty or not end or not target.startswith(b"/") or b"\r" in head:
        raise BadEnvelope("the envelope lacks a path or a body")
    return Envelope(target, b"".join(line + b"\r\n" for line in lines), opening, closing)


class Refusal(NamedTuple):
    """Answer of a model server without predictions.

    Attributes:
        status: HTTP's, from 400 to 599.
        retry_after: the header of that name; empty if there was none.
        body: as text.
    """

    status: int
    retry_after: str
    body: str


def refusal_text(refusal: Refusal) -> str:
    """Return a refusal as the text for the result memory."""
    return f"{refusal.status} {refusal.retry_after}\n{refusal.body}"


def read_refusal(text: str) -> Refusal:
    """Return the refusal of a text, perhaps with a shortened body; 502 for any other text."""
    line, _, body = text.partition("\n")
    status, _, retry_after = line.partition(" ")
    if not status.isdecimal() or not 400 <= int(status) <= 599:
        return Refusal(502, "", text)
    return Refusal(int(status), retry_after, body)
