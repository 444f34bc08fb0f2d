"""Order of scalings, if several models are to be scaled. Pure.

Models without enough workers come first, by how long they have waited, as many at once as the host
can start. None overtakes an earlier one, however few workers it wants, so each has its turn as soon
as those before it are done. Models with too many workers get the remaining places, and at least one
at each look, so they have their turn too.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ringbatch.engine.supervisor.scaling import Decision


class QueuedDecision(NamedTuple):
    """A decision that waits for its turn.

    Attributes:
        reference: of the model's entry.
        decision: for it.
        starts: how many workers it starts; 0 if it lets workers go.
        since_ns: when it was first made.
    """

    reference: int
    decision: Decision
    starts: int
    since_ns: int


def in_turn(
    decisions: Iterable[QueuedDecision], starting: int, places: int
) -> list[QueuedDecision]:
    """Return the decisions whose turn it is, in order.

    Args:
        decisions: at most one for each model.
        starting: workers that are being started now.
        places: how many workers may be started at once. A decision for more than that has its turn
            when no other worker is being started.
    """
    chosen: list[QueuedDecision] = []
    free = places - starting
    is_full = let_go = False
    for queued in sorted(decisions, key=lambda queued: (not queued.starts, queued.since_ns)):
        if queued.starts:
            is_full = is_full or free < min(queued.starts, places)
            if is_full:
                continue
        elif let_go and free <= 0:
            break
        let_go = not queued.starts
        free -= max(queued.starts, 1)
        chosen.append(queued)
    return chosen
