"""Members of JSON bodies for texts, and messages for wrong values. Pure."""

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.json_text import why_unreadable

T = TypeVar("T")


def parsed(body: bytes | bytearray) -> dict[str, Any]:
    """Return the object that a body is.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        why = why_unreadable(body, error)
        raise InvalidRequest(f"the body is no JSON in UTF-8: {why}") from None
    if not isinstance(found, dict):
        raise InvalidRequest("the body must be a JSON object")
    return found


def expect_members(found: dict[str, Any], known: Sequence[str]) -> None:
    """Return if a body has no member that would be ignored.

    Raises:
        InvalidRequest: it has.
    """
    for name in found:
        if name not in known:
            raise InvalidRequest(f"unknown member {shown(name)}; known are {', '.join(known)}")


def optional(found: dict[str, Any], name: str, kind: type[T], words: str) -> T | None:
    """Return a member of one type; None if it is absent or null.

    Raises:
        InvalidRequest: it is of another type.
    """
    value = found.get(name)
    if value is None:
        return None
    # To Python, true is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidRequest(f'"{name}" is {shown(value)}; it must be {words}')
    return value


def optional_count(found: dict[str, Any], name: str) -> int:
    """Return a member that is a whole number from 1, or 0 if it is absent or null.

    Raises:
        InvalidRequest: the member has another value.
    """
    words = "a whole number from 1"
    value = optional(found, name, int, words)
    if value is not None and value < 1:
        raise InvalidRequest(f'"{name}" is {shown(value)}; it must be {words}')
    return value or 0


def required_texts(found: dict[str, Any], name: str) -> list[str]:
    """Return a member that is a text or a list of at least one text.

    Raises:
        InvalidRequest: it is not.
    """
    value = found.get(name)
    if isinstance(value, str):
        return [value]
    if value is None:
        raise InvalidRequest(f'"{name}" is missing; it must be a text or a list of texts')
    if value == []:
        raise InvalidRequest(f'"{name}" is an empty list; it must have one text at the least')
    if not isinstance(value, list):
        raise InvalidRequest(f'"{name}" is {shown(value)}; it must be a text or a list of texts')
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise InvalidRequest(f'"{name}" has {shown(text)} at place {index}; it must be a text')
    return value
