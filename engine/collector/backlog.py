"""Predicted latency of a new request. Pure.

The collector publishes it for each model. So a frontend can refuse at once a request that would be
answered too late, and say when to try again.
"""

from typing import NamedTuple

from ringbatch.shm.tuples import unchecked_tuple


class Backlog(NamedTuple):
    """Backlog that a new request meets.

    Attributes:
        answer_ns: the time to its answer; 0 if nothing waits. At least 1 if something does, even if
            its time is unknown.
        row_ns: how much every further instance before it adds.
    """

    answer_ns: int
    row_ns: int


NOTHING = Backlog(0, 0)


def estimate(
    rows: int, max_batch_size: int, idle: int, ready: int, cycle_ns: int, behind: int = 0
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
    """
    if not ready:
        return NOTHING
    row_ns = cycle_ns // (max_batch_size * ready)
    if idle and not rows:
        # Nothing is in the way of one; of a thousand that come at once, most are in each other's.
        return unchecked_tuple(Backlog, (0, row_ns))
    # Those that run, those that are full by then, and the one that takes the request itself.
    batches = (ready - idle) + behind + rows // max_batch_size + 1
    return unchecked_tuple(Backlog, (-(-batches // ready) * max(cycle_ns, 1), row_ns))
