"""How long after its end a process is started again.

A first death is answered at once: most are single accidents, and a worker that waits serves
nobody. Further deaths in a row back off exponentially, with jitter, so that several workers that
die of the same cause do not come back, load their models and die in step.
"""

from dataclasses import dataclass
from typing import Final

FIRST_DELAY_S: Final = 1.0
MOST_DELAY_S: Final = 30.0
MOST_OWN_DELAY_S: Final = 2.0
"""Of a process that runs nobody else's code: it starts in a moment, and while it is away nothing is
answered."""
STEADY_NS: Final = 10_000_000_000
"""A process that served this long has recovered: its death is a first one again."""
OWN_STEADY_NS: Final = 1_000_000_000
"""The same for a process that runs nobody else's code."""

_DOUBLINGS: Final = 5

assert FIRST_DELAY_S * (1 << _DOUBLINGS) >= MOST_DELAY_S


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again.

    Attributes:
        delay_s: seconds to wait before that.
        failures_in_a_row: to be handed to `again` at the next death in the same place.
    """

    delay_s: float
    failures_in_a_row: int


def again(
    *,
    failures_in_a_row: int,
    lived_ns: int,
    jitter: float,
    most_s: float = MOST_DELAY_S,
    steady_ns: int = STEADY_NS,
) -> Restart:
    """What follows the death of a process, or that none could be started.

    Args:
        failures_in_a_row: in this place before this one, none of them after a long life.
        lived_ns: nanoseconds from the moment it was ready to its death; 0 if it never was.
        jitter: a random number from 0 up to, but not including, 1.
        most_s: the longest delay.
        steady_ns: a life that is long.
    """
    earlier = 0 if lived_ns >= steady_ns else failures_in_a_row
    return Restart(min(next_delay(earlier + 1, jitter), most_s), earlier + 1)


def next_delay(failures_in_a_row: int, jitter: float) -> float:
    """Seconds before the next start: 0 after one failure, then half to all of 1, 2, 4, ... 30.

    Args:
        failures_in_a_row: with the one just seen.
        jitter: a random number from 0 up to, but not including, 1.
    """
    if failures_in_a_row <= 1:
        return 0.0
    doublings = min(failures_in_a_row - 2, _DOUBLINGS)
    longest_s = min(FIRST_DELAY_S * (1 << doublings), MOST_DELAY_S)
    return longest_s * (1 + jitter) / 2
