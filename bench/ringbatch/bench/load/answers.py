"""Answers over HTTP/1.1, as far as a generator reads them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

_TOLERANCE: Final = 1e-3
"""Relative: sums of floats differ with the size of the batch that they are formed in."""
_MARKS: Final = (b'"predictions":', b'"outputs":', b'"choices":')
"""Begins of the answer to the request; the text before them differs with every request."""


_ANSWERS: Final = ("predictions", "outputs", "choices")


class BadAnswer(ValueError):
    """Answer that cannot be read; the message says why."""


class Head(NamedTuple):
    """Head of an answer.

    Attributes:
        status: of HTTP.
        size: bytes of head and body.
        body: where the body begins.
        closes: True if the connection takes no further request.
    """

    status: int
    size: int
    body: int
    closes: bool


def read_head(data: bytes) -> Head | None:
    """Return the head in the data so far; None if it is not whole.

    Raises:
        BadAnswer: it is not HTTP/1.1, or does not say how long the body is.
    """
    end = data.find(b"\r\n\r\n")
    if not data.startswith(b"HTTP/1.1 "[: len(data)]):
        raise BadAnswer(f"an answer that is not HTTP/1.1: {data[:40]!r}")
    if end < 0:
        if len(data) > 65536:
            raise BadAnswer("a head of more than 64 KiB")
        return None
    head = data[:end].lower() + b"\r\n"
    status = data[9:12]
    at = head.find(b"\r\ncontent-length:")
    length = head[at + 17 : head.find(b"\r\n", at + 2)].strip() if at >= 0 else b""
    if not status.isdigit():
        raise BadAnswer(f"an answer without a status: {data[:40]!r}")
    if not length.isdigit():
        raise BadAnswer("an answer without Content-Length")
    return Head(int(status), end + 4 + int(length), end + 4, b"\r\nconnection: close\r\n" in head)


def post(host: str, path: str, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return a whole request.

    Args:
        host: of the request, if no header gives another.
        path: of the request.
        body: of the request.
        headers: beside those that every request has.
    """
    is_named = any(name.lower() == "host" for name, _ in headers)
    lines = [
        f"POST {path} HTTP/1.1",
        *([] if is_named else [f"Host: {host}"]),
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


@dataclass(frozen=True)
class Reference:
    """Right answer to one request.

    Attributes:
        text: from the mark on, as it came once.
        values: the same, decoded.
    """

    text: bytes
    values: Any

    @classmethod
    def of(cls, body: bytes) -> "Reference":
        """Return the reference of a right answer's body."""
        text = answer_part(body)
        return cls(text, values_of(body))

    def is_met_by(self, body: bytes) -> bool:
        """Return whether an answer is right; numbers may differ by a thousandth of their size."""
        if answer_part(body) == self.text:
            return True
        try:
            return alike(values_of(body), self.values)
        except ValueError:
            return False

    def outputs_are(self, outputs: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether outputs, as in V2's JSON with flat data, are right.

        The right answer must be one of V2.
        """
        keys = ("name", "datatype", "shape", "data")
        try:
            right = [{key: one[key] for key in keys} for one in self.values]
        except (KeyError, TypeError):
            return False
        return alike([{key: one[key] for key in keys} for one in outputs], right)


def answer_part(body: bytes) -> bytes:
    """Return the part of an answer that is the same each time."""
    for mark in _MARKS:
        at = body.find(mark)
        if at >= 0:
            return body[at:]
    return body


def values_of(body: bytes) -> Any:
    """Return the decoded answer without its request's own parts; bytes if it is no JSON."""
    try:
        found = orjson.loads(body)
    except ValueError:
        return body
    if isinstance(found, dict):
        return next((found[key] for key in _ANSWERS if key in found), found)
    return found


def alike(found: Any, expected: Any) -> bool:
    """Return whether two decoded answers are the same, numbers up to the tolerance."""
    if isinstance(found, dict) and isinstance(expected, dict):
        same = found.keys() == expected.keys()
        return same and all(alike(found[key], expected[key]) for key in found)
    if isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return False
        if all(isinstance(one, int | float) for one in (*found, *expected)):
            return _close(found, expected)
        return all(map(alike, found, expected))
    if isinstance(found, int | float) and isinstance(expected, int | float):
        return _close(found, expected)
    return bool(found == expected)


def _close(found: Any, expected: Any) -> bool:
    return bool(np.allclose(found, expected, rtol=_TOLERANCE, atol=1e-6, equal_nan=True))
