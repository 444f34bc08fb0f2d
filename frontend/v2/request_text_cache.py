"""Memory of the texts of earlier V2 requests, without their values and ids. Pure.

A program that sends tensors mostly sends the same text around the values of each, but for an id.
So the meaning of a text is remembered without these; it has a gap in their place. JSON means
the same around any value at one place. So the meaning around one value holds around the
next, once it is known that the place is the one that counts. For of several members of one name the
last does, an ignored object may have any member, and escapes may hide some.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.parse_cache import MOST_BYTES, ParseCache
from ringbatch.frontend.v2.requested_outputs import ID_MEMBER

T = TypeVar("T")

_ID: Final = b'"id":'
_PLAIN_ID: Final = re.compile(rb'"id": ?("[ !#-\[\]-~]*")')
"""An id of characters that JSON has as they are, in a request and in its answer."""
_DATA: Final = b'"data":'
_GAP: Final = b'"data":}'
_REMEMBERED: Final = 256


def around_values(body: bytes | bytearray) -> tuple[bytes, bytes | bytearray]:
    """Return a text with a gap at its first `data`, and the bytes there up to a brace.

    That is all of the value if it is a list of numbers and the last member of its object.
    """
    head, _, rest = body.partition(_DATA)
    values, _, tail = rest.partition(b"}")
    return b"".join((head, _GAP, tail)), values


class RequestTextCache(Generic[T]):
    """Cache of texts.

    Args:
        value: the decoded request's value at the gap of every text; None if no text has one,
            but for an id.
    """

    def __init__(self, value: Callable[[Any], Any] | None = None) -> None:
        self._value = value
        self._known: ParseCache[bytes, T] = ParseCache(_REMEMBERED)
        self._known_with_id: ParseCache[bytes, T] = ParseCache(_REMEMBERED)

    def recall(self, text: bytes) -> tuple[T, bytes] | None:
        """Return the meaning of a text, and the answer's member with its id; None for a new text.

        The member is as `id_member`; empty if the text has no id.
        """
        meaning = self._known.get(text)
        if meaning is not None:
            return meaning, b""
        around, identity = _around_id(text)
        if identity:
            meaning = self._known_with_id.get(around)
            if meaning is not None:
                return meaning, identity
        return None

    def learn(self, text: bytes, meaning: T, identity: bytes) -> None:
        """Remember what a text says, if other texts will say the same.

        Args:
            text: of a sound request.
            meaning: by it, whatever its id.
            identity: the answer's member with its id; empty if it has none.
        """
        around, plain = _around_id(text)
        if len(around) > MOST_BYTES or plain != identity or not self._counts(around, plain):
            return
        known = self._known_with_id if plain else self._known
        known.put(around, meaning, len(around))

    def _counts(self, around: bytes, identity: bytes) -> bool:
        """Return whether the members that count have the gaps: null there is null in them."""
        if identity:
            around = around.replace(_ID, b'"id":null', 1)
        if self._value is not None:
            around = around.replace(_DATA, b'"data":null', 1)
        elif not identity:
            return True
        try:
            request = loads(around)
        except JSONDecodeError:
            return False
        return request.get("id") is None and (self._value is None or self._value(request) is None)


def _around_id(text: bytes) -> tuple[bytes, bytes]:
    """Return a text with a gap at its first id, and the answer's member with that.

    Without a plain id, the text is returned as it is.
    """
    start = text.find(_ID)
    if start >= 0:
        found = _PLAIN_ID.match(text, start)
        if found is not None:
            return text[:start] + _ID + text[found.end() :], ID_MEMBER % found[1]
    return text, b""
