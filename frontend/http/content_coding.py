"""Bodies under Content-Encoding gzip and deflate: expanded within a limit, and made.

    coding      is
    ----------  ------------------------------------------------------------
    gzip        one or more members, RFC 1952; x-gzip is another name of it
    deflate     one zlib stream, RFC 1950
    identity    nothing; so is an empty header

What a client accepts is read after RFC 9110, section 12.5.3. Of codings it likes equally the first
is taken, as Triton does; of one that it does not name, and of none, it gets the plain body.
"""

import re
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ringbatch.frontend.codec.limit_messages import body_too_large
from ringbatch.shm.errors import InvalidRequest

CODINGS: Final = ("gzip", "deflate")
"""Codings of requests and answers, beside plain bodies."""
MIN_ENCODED_BYTES: Final = 2048
"""Below this an answer is sent plain: it goes out in one or two packets either way."""
SLOW_BYTES: Final = 1 << 18
"""Size of an answer from which encoding takes milliseconds, too long for an event loop."""

_IDENTITY: Final = "identity"
_WINDOWS: Final = {"gzip": 31, "deflate": 15}
"""Window bits by which zlib knows the two containers."""
_NAMES: Final = {"x-gzip": "gzip"}
_LEVEL: Final = 1
"""The others take several times as long, for a tenth less."""
_STEP_BYTES: Final = 1 << 20
"""The most that one step makes."""
_TAKEN_BYTES: Final = 1 << 16
"""The most that one step takes: blocks may mean nothing, and each member copies what is left."""
_MAX_MEMBERS: Final = 1000
"""Most gzip members of one body: each costs more than its 20 bytes tell."""
_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


class CodingNotSupported(ValueError):
    """A body is encoded in a way that is not understood."""


class Acceptance(NamedTuple):
    """Codings that a client accepts.

    Attributes:
        coding: to encode an answer with; None for a plain one.
        plain: True if a plain answer would do.
    """

    coding: str | None
    plain: bool


PLAIN: Final = Acceptance(None, plain=True)
"""Acceptance of a client that does not say."""


def coding_of(header: str) -> str | None:
    """Return the coding that a Content-Encoding header names; None for a plain body.

    Raises:
        CodingNotSupported: it is another, or there are several.
    """
    named = [name.strip(" \t").lower() for name in header.split(",")]
    codings = [_NAMES.get(name, name) for name in named if name not in ("", _IDENTITY)]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in CODINGS:
        raise CodingNotSupported(
            f"Content-Encoding {header[:60]!a} is not supported; send the body as gzip, as "
            "deflate, or as it is"
        )
    return codings[0]


def acceptance(header: str) -> Acceptance:
    """Return the codings in an Accept-Encoding header, without elements that make no sense."""
    weights: dict[str, float] = {}
    for element in header.split(","):
        name, *parameters = (piece.strip(" \t").lower() for piece in element.split(";"))
        found = _WEIGHT.fullmatch(parameters[0]) if len(parameters) == 1 else None
        if name and (found or not parameters):
            weights.setdefault(_NAMES.get(name, name), float(found[1]) if found else 1.0)
    others = weights.get("*", 0.0)
    plain = weights.get("identity", weights.get("*", 1.0)) > 0
    liked = [name for name, weight in weights.items() if weight and name in (*CODINGS, _IDENTITY)]
    if not liked and not plain and others:
        # It wants anything but a plain body, and does not say what.
        liked = [name for name in CODINGS if name not in weights]
    best = max(liked, key=lambda name: weights.get(name, others), default=_IDENTITY)
    return PLAIN if best == _IDENTITY else Acceptance(best, plain=plain)


def encoded(body: bytes, coding: str) -> bytes:
    """Return a body in one of `CODINGS`."""
    return zlib.compress(body, _LEVEL, _WINDOWS[coding])


def coding_headers(coding: str) -> tuple[tuple[str, str], ...]:
    """Return the headers that an encoded answer has beside those of a plain one."""
    return (("content-encoding", coding), ("vary", "Accept-Encoding"))


class Expander:
    """Takes an encoded body piece by piece, and never holds more than the limit of what it means.

    Args:
        coding: one of `CODINGS`.
        max_bytes: of the expanded body.
    """

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._coding = coding
        self._max_bytes = max_bytes
        self._stream = zlib.decompressobj(_WINDOWS[coding])
        self._members = 1
        self._begun = False
        self._body = bytearray()

    def __len__(self) -> int:
        """Bytes that it holds."""
        return len(self._body)

    def steps(self, data: bytes) -> Iterator[None]:
        """Expand one more piece, a part at each step.

        A small piece may become many millions of bytes, and a large one few.

        Raises:
            InvalidRequest: the piece does not follow the coding.
            RequestTooLarge: the body is longer than the limit.
        """
        for start in range(0, len(data), _TAKEN_BYTES):
            end = start + _TAKEN_BYTES
            left = data[start:end]
            while left:
                left = self._step(left)
                if left or end < len(data):
                    yield

    def _step(self, data: bytes) -> bytes:
        """Expand the beginning of some bytes, and return the others."""
        if self._stream.eof:
            self._next_member()
        room = self._max_bytes - len(self._body)
        try:
            # One byte more than there is room for tells a full body from one too long.
            self._body += self._stream.decompress(data, min(_STEP_BYTES, room + 1))
        except zlib.error:
            if self._members > 1:
                raise InvalidRequest(
                    "bytes follow the end of the gzip stream in the body, and are no further one"
                ) from None
            raise InvalidRequest(f"the body is no {self._coding} stream") from None
        self._begun = True
        if len(self._body) > self._max_bytes:
            found = f"the body has more than {self._max_bytes} bytes once it is expanded"
            raise body_too_large(found, self._max_bytes)
        return self._stream.unconsumed_tail or self._stream.unused_data

    def finish(self) -> bytearray:
        """Return the whole body.

        Raises:
            InvalidRequest: its end is missing.
        """
        if not self._stream.eof:
            found = "ends in the middle of its" if self._begun else "is empty, which is no"
            raise InvalidRequest(f"the body {found} {self._coding} stream")
        return self._body

    def _next_member(self) -> None:
        if self._coding != "gzip":
            raise InvalidRequest("bytes follow the end of the deflate stream in the body")
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise InvalidRequest(f"the body has more than {_MAX_MEMBERS} gzip members")
        self._stream = zlib.decompressobj(_WINDOWS[self._coding])
