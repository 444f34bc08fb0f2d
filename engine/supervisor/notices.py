"""What the engine's processes tell their supervisor. Pure.

A process is no authority: what runs in it may be anybody's code. So each role may say its own
things alone, and whoever says anything else is not to be trusted with more.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from ringbatch.shm.tensor import Tensor

_SHOWN: Final = 80
"""Characters of what makes no sense that a person is shown."""


class Nonsense(Exception):
    """A process says what it should not. The text goes on behind its name."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Of a worker: what its model takes and returns.

    Attributes:
        tensors: the lists ``inputs`` and ``outputs`` of tensors as JSON has them.
    """

    tensors: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Warming:
    """Of a worker: its model is loaded, and warm-up begins."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Of all: it does its work from now on."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Of frontends: the event loop turns."""


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Of the collector: it has nothing left to do but to wait until the one before has ended."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Of all: why it is about to end, for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hung:
    """Of the collector: a worker does not come back from a batch."""

    worker: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Of the collector: it has taken back what a dead worker held.

    Attributes:
        worker: the number.
        explained: whether it is known what killed it, and that it will not be tried again.
    """

    worker: int
    explained: bool


@dataclass(frozen=True, slots=True)
class Released:
    """Of the collector: nothing is expected of a worker any more."""

    worker: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of the collector: all workers of an entry of the table are ready."""

    reference: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Of the collector: nothing of a retiring entry is left."""

    reference: int


Notice = (
    Signature
    | Warming
    | Ready
    | Beat
    | StandingBy
    | Failed
    | Hung
    | Reclaimed
    | Released
    | Loaded
    | Drained
)

OF_ALL: Final = (Ready, Failed)
OF_FRONTENDS: Final = (*OF_ALL, Beat)
OF_WORKERS: Final = (*OF_ALL, Signature, Warming)
OF_THE_COLLECTOR: Final = (*OF_ALL, StandingBy, Hung, Reclaimed, Released, Loaded, Drained)


def notice(line: bytes, allowed: tuple[type[Notice], ...]) -> Notice:
    """What a line says.

    Args:
        line: without its end.
        allowed: to whoever says it.

    Raises:
        Nonsense: nothing, or nothing that is allowed.
    """
    try:
        found = _found(json.loads(line))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, allowed):
        raise Nonsense(f"says {line[:_SHOWN]!r}, which it should not")
    return found


def _found(fields: object) -> Notice | None:
    match fields:
        case {"inputs": list(inputs), "outputs": list(outputs)}:
            tensors = {"inputs": inputs, "outputs": outputs}
            return Signature(tensors) if all(map(_is_tensor, inputs + outputs)) else None
        case {"warming": True}:
            return Warming()
        case {"ready": True}:
            return Ready()
        case {"beat": True}:
            return Beat()
        case {"standing_by": True}:
            return StandingBy()
        case {"error": str(reason)}:
            return Failed(reason)
        case {"hung": int(worker)}:
            return Hung(worker)
        case {"reclaimed": int(worker), "explained": bool(explained)}:
            return Reclaimed(worker, explained)
        case {"released": int(worker)}:
            return Released(worker)
        case {"loaded": int(reference)}:
            return Loaded(reference)
        case {"drained": int(reference)}:
            return Drained(reference)
    return None


def _is_tensor(fields: object) -> bool:
    if not isinstance(fields, dict):
        return False
    try:
        return Tensor(**fields).to_json() == fields
    except (TypeError, ValueError):
        return False
