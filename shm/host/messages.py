"""Messages between the supervisor and its processes: their encoding, and those of frontends. Pure.

A message is a frozen dataclass. It crosses as a line of JSON: the name of its class and its fields.

    {"type": "ReclaimWorker", "worker": 3, "killed": true}

Other messages are in `role_events` and `role_commands` of `ringbatch.engine.process`. A process is
no authority, as it may run anybody's code. So every field is compared with its annotation, and each
end names the messages that it takes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from ringbatch.shm.tensor import Tensor

M_co = TypeVar("M_co", covariant=True)

_SHOWN: Final = 80
"""Characters of a malformed line that a person is shown."""


class MalformedMessage(Exception):
    """A line is no message that may come from there. The text goes on behind the sender's name."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Message of any process: it does its work from now on."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Message of any process: the reason why it is about to end, for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Beat:
    """Message of a frontend: its event loop turns."""


class Vocabulary(Generic[M_co]):
    """The messages that one end takes.

    Args:
        types: their classes.
    """

    def __init__(self, *types: type[M_co]) -> None:
        self._types: Mapping[str, type[M_co]] = {kind.__name__: kind for kind in types}

    def decode(self, line: bytes) -> M_co:
        """Return the message in a line without its end.

        Raises:
            MalformedMessage: there is none, or none of these.
        """
        try:
            found = json.loads(line)
            message: M_co = _message(self._types[found.pop("type")], found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise MalformedMessage(f"says {line[:_SHOWN]!r}, which it should not") from None
        return message


def encode(message: object) -> bytes:
    """Return the line of a message, with its end.

    Args:
        message: an instance of one of the dataclasses of a `Vocabulary`.
    """
    return json.dumps({"type": type(message).__name__, **_items(message)}).encode() + b"\n"


def _items(message: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(message, field.name)) for field in fields(message)}


def _plain(value: Any) -> Any:
    """Return a field's value as JSON has it."""
    if isinstance(value, Tensor):
        return value.to_json()
    if is_dataclass(value):
        return _items(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _message(kind: Any, found: dict[str, Any]) -> Any:
    """Return an instance of a dataclass.

    Raises:
        TypeError: a field is missing or one too many, or is not of its type.
        ValueError: a field's value is impossible.
    """
    kinds = {field.name: field.type for field in fields(kind)}
    if found.keys() != kinds.keys():
        raise TypeError(found)
    return kind(**{name: _value(kinds[name], value) for name, value in found.items()})


def _value(kind: Any, found: Any) -> Any:
    """Return a field's JSON value as its annotation wants it."""
    if isinstance(kind, UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
        return None if found is None else _value(kind, found)
    if get_origin(kind) is tuple and isinstance(found, list):
        return tuple(_value(get_args(kind)[0], item) for item in found)
    if kind is Tensor:
        tensor = Tensor(**found)
        if tensor.to_json() != found:
            raise TypeError(found)
        return tensor
    if is_dataclass(kind) and isinstance(found, dict):
        return _message(kind, found)
    if kind is float and type(found) is int:
        return float(found)
    # JSON has true and false for no number.
    if type(found) is not kind:
        raise TypeError(found)
    return found
