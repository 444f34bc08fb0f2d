"""Batches for a V1 model server: requests' instances to one body, an answer to predictions.

Pure. The instances are the clients' text, character for character, and the predictions are the
server's: numbers of any size and spelling and the order of keys survive.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import orjson

from ringbatch.shm.forward_envelope import Envelope
from ringbatch.shm.host.json_text import UnsoundText, can_be_sliced, elements, members, why_unsound

_KEYS: Final = ("predictions", "outputs")
"""`outputs` is TensorFlow Serving's answer to `inputs`."""
_USUAL: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"predictions"[ \t\r\n]*:[ \t\r\n]*(?=\[)')
_BLANK: Final = b" \t\r\n"
_SHOWN: Final = 200


class _Cut(NamedTuple):
    """JSON text of a list, cut between its elements.

    ``opening + between.join(pieces) + closing`` is the text of a list with some of them.
    """

    opening: bytes
    between: bytes
    closing: bytes
    pieces: list[bytes]


class NoPredictions(ValueError):
    """The answer holds no list of predictions; the text says what it is instead."""


class Miscounted(NoPredictions):
    """The answer holds more or fewer predictions than there were instances."""


def joined(asked: Envelope, lists: Sequence[bytes]) -> bytes:
    """Return the body of a request with the instances of all lists.

    Args:
        asked: the text around the list.
        lists: JSON texts of lists, none of them empty.
    """
    return b"%b[%b]%b" % (asked.opening, b",".join([text[1:-1] for text in lists]), asked.closing)


def shared_out(body: bytes, rows: Sequence[int]) -> list[bytes]:
    """Return the predictions in an answer, as the JSON text of a list for each request.

    Args:
        body: the answer.
        rows: instances of each request.

    Raises:
        NoPredictions: and so its subclass `Miscounted`.
    """
    text, found = _usual_predictions(body) or _predictions_beside_others(body)
    count = sum(rows)
    if found != count:
        raise Miscounted(f"the model server gave {found} predictions for {count} instances")
    if len(rows) == 1:
        return [text]
    opening, between, closing, pieces = _cut_lists(text, count) or _cut(text)
    around = opening + b"%b" + closing
    if len(rows) == count:
        return [around % piece for piece in pieces]
    ends = accumulate(rows)
    return [
        around % between.join(pieces[end - own : end]) for end, own in zip(ends, rows, strict=True)
    ]


def shown(body: bytes) -> str:
    """Return the beginning of an unexpected body, in one line."""
    text = " ".join(body[: 4 * _SHOWN].decode(errors="replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _usual_predictions(body: bytes) -> tuple[bytes, int] | None:
    """Return the text of the list, without blanks around it, and the number of predictions.

    None unless the list is the only member of the answer, right or wrong.
    """
    usual = _USUAL.match(body)
    if usual is None or not can_be_sliced(body, b'"predictions"', usual.end()):
        return None
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    # The object ends behind the last bracket.
    text = body[usual.end() : body.rindex(b"]") + 1]
    return (text, len(answer["predictions"])) if len(answer) == 1 else None


def _predictions_beside_others(body: bytes) -> tuple[bytes, int]:
    try:
        text = body.decode()
        found = members(text)
    except (UnicodeDecodeError, UnsoundText) as error:
        why = why_unsound(body, error)
        words = f"the model server answered no JSON object: {why}: {shown(body)}"
        raise NoPredictions(words) from None
    for key in _KEYS:
        if key in found and isinstance(found[key].decoded, list):
            value = found[key]
            return text[value.start : value.end].encode(), len(value.decoded)
    raise NoPredictions(f"the model server answered without `predictions`: {shown(body)}")


def _cut_lists(text: bytes, count: int) -> _Cut | None:
    """Cut a list of `count` elements, at least two, that are flat lists, as models mostly answer.

    None if they are something else, or the blanks between them differ.

    The text is sound JSON. The separator is the text from the first closing bracket to the next
    opening one. If it cuts the text into `count` pieces, and none of these holds a bracket, then
    there are as many lists as elements. Without strings each list closes before the next opens, so
    none is inside another.
    """
    start, first_end = text.find(b"[", 1) + 1, text.find(b"]")
    next_start, end = text.find(b"[", first_end) + 1, text.rfind(b"]", 0, -1)
    if not next_start or b'"' in text:
        return None
    between = text[first_end:next_start]
    pieces = text[start:end].split(between)
    if len(pieces) != count or b"[" in b"".join(pieces):
        return None
    return _Cut(text[:start], between, text[end:], pieces)


def _cut(text: bytes) -> _Cut:
    """Cut any list; its text is sound JSON."""
    if b'"' not in text and b"{" not in text and text.find(b"[", 1) < 0:
        pieces = text[1:-1].strip(_BLANK).split(b",")
    else:
        # Offsets in a text count characters, not bytes.
        characters = text.decode()
        pieces = [characters[start:end].encode() for start, end in elements(characters, 0)]
    return _Cut(b"[", b",", b"]", pieces)
