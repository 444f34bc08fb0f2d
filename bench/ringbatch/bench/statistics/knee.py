"""The highest rate that a server answers within a limit, by halving. Pure."""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Final

_CLOSE_ENOUGH: Final = 0.05
"""Largest gap between the highest rate that held and the lowest that did not, as a share."""


class Trial(Enum):
    """Trial of one rate."""

    HELD = "held"
    MISSED = "missed"
    VOID = "void"
    """Nothing can be said of it, mostly because the generator could not make it."""


@dataclass(frozen=True)
class Knee:
    """Rate at which the limit is reached.

    Attributes:
        rate_per_s: the highest rate that held; 0 if none did.
        missed_per_s: the lowest above it that did not; None if none was found.
        why: remarks, in words; empty if it is bounded on both sides.
    """

    rate_per_s: float
    missed_per_s: float | None
    why: str


def search(
    first_per_s: float, steps: int, lowest_per_s: float = 1.0
) -> Generator[float, Trial, Knee]:
    """Find the knee: yields a rate to try and is sent what it came to.

    Args:
        first_per_s: where to begin: what the server answers at most, as far as is known.
        steps: how many rates are tried at most.
        lowest_per_s: below which nothing is tried.
    """
    held, missed, void = 0.0, None, False
    rate = first_per_s
    for _ in range(steps):
        found = yield rate
        if found is Trial.HELD:
            held = rate
        else:
            missed, void = rate, found is Trial.VOID
        if missed is None:
            rate = held * 1.5
        elif missed - held <= _CLOSE_ENOUGH * missed or missed <= lowest_per_s:
            break
        else:
            # Once by a quarter of it: most of the range below what was hoped is never needed.
            rate = (held + missed) / 2 if held else max(missed * 0.7, lowest_per_s)
    if not held:
        return Knee(0.0, missed, "no rate that was tried held the limit")
    if missed is None:
        return Knee(held, None, "every rate that was tried held the limit; it may hold more")
    if void:
        return Knee(held, None, "above it the generator cannot make the rate; it may hold more")
    return Knee(held, missed, "")
