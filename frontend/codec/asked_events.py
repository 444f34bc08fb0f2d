"""Wish for events in the body of a request: its member `stream`. Pure.

Bodies that do not have the word are not looked into.
"""

import json
from typing import Any, Final

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.shm.errors import InvalidRequest

_MEMBER: Final = "stream"
_WORD: Final = b'"stream"'


class EventsAsked(Exception):
    """A request asks for events in its body, and comes from where nobody has seen that yet."""


def asks_for_events(body: bytes | bytearray, *, parameters: bool) -> bool:
    """Return whether a body asks for events.

    Args:
        body: JSON, whose other faults are found elsewhere.
        parameters: whether the wish may stand among its parameters as well.

    Raises:
        InvalidRequest: the wish is neither true nor false.
    """
    if _WORD not in body:
        return False
    request = _decoded(body)
    if not isinstance(request, dict):
        return False
    asks = _wish(request, "the request")
    given = request.get("parameters") if parameters else None
    return asks or (isinstance(given, dict) and _wish(given, "the request's parameters"))


def _decoded(body: bytes | bytearray) -> Any:
    try:
        return loads(body)
    except JSONDecodeError:
        pass
    try:
        # Models without declared inputs take what Python reads, such as NaN.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _wish(owner: dict[str, Any], where: str) -> bool:
    found = owner.get(_MEMBER)
    if found is not None and not isinstance(found, bool):
        raise InvalidRequest(f"`stream` of {where} is {shown(found)}, not true or false")
    return bool(found)
