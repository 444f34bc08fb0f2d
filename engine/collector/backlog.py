"""Predicted latency of a new request. Pure.

The collector publishes it for each model. So a frontend can refuse at once a request that would be
answered too late, and say when to try again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringbatch.engine.collector.usage import shared_account, without_repeats
from ringbatch.shm.account import NOBODY
from ringbatch.shm.tuples import unchecked_tuple


class Backlog(NamedTuple):
    """Backlog that a new request meets.

    Attributes:
        answer_ns: the time to its answer behind all that waits; 0 if nothing does. At least 1 if
            something does, even if its time is unknown.
        row_ns: how much every further instance before it adds.
        least_ns: the least time to its answer if its account has nothing waiting.
        account: the account word of all that waits, see
            `ringbatch.engine.collector.queues.Queues.account`.
        most_ns: the longest time that it may be expected to take; 0 if its deadline alone counts.
    """

    answer_ns: int
    row_ns: int
    least_ns: int = 0
    account: int = NOBODY
    most_ns: int = 0


NOTHING = Backlog(0, 0)
STANDING_NS: Final = 100_000_000
"""A queue that has not been empty for so long is no burst: it stands."""


def standing(since_ns: int, rows: int, now_ns: int) -> tuple[int, bool]:
    """Return since when a queue has not been empty, 0 if it is, and whether it stands.

    Args:
        since_ns: the instant that the last call returned.
        rows: that wait now.
        now_ns: the time.
    """
    if not rows:
        return 0, False
    since_ns = since_ns or now_ns
    return since_ns, now_ns - since_ns >= STANDING_NS


def estimate(
    rows: int,
    max_batch_size: int,
    idle: int,
    ready: int,
    cycle_ns: int,
    behind: int = 0,
    least_rows: int = 0,
    account: int = NOBODY,
    most_ns: int = 0,
) -> Backlog:
    """Return the backlog of one model.

    A batch under way is counted whole: it errs on the side of refusing, by half a batch.

    Args:
        rows: instances that wait.
        max_batch_size: of one batch.
        idle: workers that have no batch.
        ready: workers, busy or not; with none, nothing can be predicted.
        cycle_ns: recent time from the beginning of a batch to its report.
        behind: batches that busy workers have beside those they run.
        least_rows: of those that wait, how many go before a request whose account has none.
        account: the word of all that waits.
        most_ns: as in `Backlog`.
    """
    if not ready:
        return NOTHING
    row_ns = cycle_ns // (max_batch_size * ready)
    if idle and not rows:
        # Nothing is in the way of one; of a thousand that come at once, most are in each other's.
        return unchecked_tuple(Backlog, (0, row_ns, 0, account, most_ns))
    # Those that run, those that are full by then, and the one that takes the request itself.
    batches, full = (ready - idle) + behind + 1, rows // max_batch_size
    answer_ns = least_ns = -(-(batches + full) // ready) * max(cycle_ns, 1)
    if full:
        least_ns = -(-(batches + least_rows // max_batch_size) // ready) * max(cycle_ns, 1)
    return unchecked_tuple(Backlog, (answer_ns, row_ns, least_ns, account, most_ns))


def together(steps: Sequence[Backlog]) -> Backlog:
    """Return the backlog of a chain by those of its steps."""
    accounts = [step.account for step in steps if step.answer_ns]
    return Backlog(
        sum([step.answer_ns for step in steps]),
        sum([step.row_ns for step in steps]),
        sum([step.least_ns for step in steps]),
        shared_account(without_repeats(accounts)) if accounts else NOBODY,
    )
