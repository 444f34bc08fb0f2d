"""A batch for a V1 model server: requests' instances to one body, its answer to predictions.

Pure. The instances are what the clients wrote, character for character, and so are the predictions
what the server wrote: numbers of any size and spelling and the order of keys survive.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from ringbatch.shm.forward import Forwarded
from ringbatch.shm.jsontext import MAX_NESTING, UnsoundText, elements, members

_KEYS: Final = ("predictions", "outputs")
"""`outputs` is what TensorFlow Serving answers to `inputs`."""
_USUAL: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"predictions"[ \t\r\n]*:[ \t\r\n]*(?=\[)')
_BETWEEN_LISTS: Final = re.compile(rb"\][ \t\r\n]*,[ \t\r\n]*\[")
_BLANK: Final = b" \t\r\n"
_SHOWN: Final = 200


class NoPredictions(ValueError):
    """The answer holds no list of predictions; says what it is instead."""


class Miscounted(NoPredictions):
    """It holds more or fewer than there were instances."""


def joined(asked: Forwarded, lists: Sequence[bytes]) -> bytes:
    """The body that asks for all of them.

    Args:
        asked: what stands around the list.
        lists: JSON texts of lists, none of them empty.
    """
    return b"%b[%b]%b" % (asked.opening, b",".join([text[1:-1] for text in lists]), asked.closing)


def shared_out(body: bytes, rows: Sequence[int]) -> list[bytes]:
    """The predictions in an answer, as the JSON text of a list for each request.

    Args:
        body: the answer.
        rows: instances of each request.

    Raises:
        NoPredictions: and so its subclass `Miscounted`.
    """
    text, decoded = _predictions(body)
    count = sum(rows)
    if len(decoded) != count:
        raise Miscounted(f"the model server gave {len(decoded)} predictions for {count} instances")
    if len(rows) == 1:
        return [text]
    pieces = _pieces(text, decoded)
    parts, start = [], 0
    for own in rows:
        parts.append(b"[%b]" % b",".join(pieces[start : start + own]))
        start += own
    return parts


def shown(body: bytes) -> str:
    """The beginning of a body that is not what it should be, in one line."""
    text = " ".join(body[: 4 * _SHOWN].decode(errors="replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _predictions(body: bytes) -> tuple[bytes, list[Any]]:
    """The text of the list, no blanks around it, and the list."""
    usual = _USUAL.match(body)
    if usual is not None and body.count(b'"predictions"') == 1 and b"\\u" not in body:
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = {}
        if len(answer) == 1 and body.count(b"[") + body.count(b"{") <= MAX_NESTING:
            # It is the only member, so the last bracket is its own.
            return body[usual.end() : body.rindex(b"]") + 1], answer["predictions"]
    return _predictions_beside_others(body)


def _predictions_beside_others(body: bytes) -> tuple[bytes, list[Any]]:
    try:
        text = body.decode()
        found = members(text)
    except (UnicodeDecodeError, UnsoundText):
        raise NoPredictions(f"the model server answered no JSON object: {shown(body)}") from None
    for key in _KEYS:
        if key in found and isinstance(found[key].decoded, list):
            value = found[key]
            return text[value.start : value.end].encode(), value.decoded
    raise NoPredictions(f"the model server answered without `predictions`: {shown(body)}")


def _pieces(text: bytes, decoded: list[Any]) -> list[bytes]:
    """The text of each element of a list."""
    inner = text[1:-1].strip(_BLANK)
    if b'"' not in inner and b"{" not in inner:
        lists = inner.count(b"[")
        if not lists:
            return inner.split(b",")
        if lists == len(decoded) and all(type(value) is list for value in decoded):
            return [b"[%b]" % piece for piece in _BETWEEN_LISTS.split(inner[1:-1])]
    # Places in a text are those of its characters, not of its bytes.
    characters = text.decode()
    return [characters[start:end].encode() for start, end in elements(characters, 0)]
