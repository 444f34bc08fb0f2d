"""Division of a lane's slots and memory among models. Pure.

Each lane divides its own, so that no two processes count together. A part is set aside. All models
take from the rest. Once the rest is used up, each model may have its own slots of those set aside.
So a model that holds little finds a slot, however many requests of other models wait. If there are
more models than slots set aside, each may have one of them while they last.

A model alone has the whole lane.
"""

from typing import Final, NamedTuple

from ringbatch.shm.extents import RESERVE_SHARE
from ringbatch.shm.layout import ALIGNMENT

_ASIDE_SHARE: Final = 2
"""Divisor of a lane's slots: at most one slot in so many is set aside."""


class Division(NamedTuple):
    """Slots and bytes that are set aside, and a model's own part of them.

    Attributes:
        slots: all that are set aside.
        own_slots: each model may have so many of these.
        memory_bytes: all that are set aside.
        own_bytes: each model may have so many of these.
    """

    slots: int
    own_slots: int
    memory_bytes: int
    own_bytes: int


UNDIVIDED: Final = Division(0, 0, 0, 0)


def division(slots: int, lane_bytes: int, models: int) -> Division:
    """Return how a lane with so many slots and bytes is divided among so many models."""
    most = slots // _ASIDE_SHARE
    if models < 2 or not most:
        return UNDIVIDED
    parts = min(models, most)
    own_slots = most // parts
    own_bytes = lane_bytes // RESERVE_SHARE // parts // ALIGNMENT * ALIGNMENT
    return Division(parts * own_slots, own_slots, parts * own_bytes, own_bytes)
