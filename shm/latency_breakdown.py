"""Phases of a request's time, computed from the stamps of its slot and its connection. Pure.

From the first byte to the answer, each instant ends one phase and begins the next:

    read      the request arrives
    queue     it is parsed, waits for others, and for a worker to take up its batch
    gather    its batch is put together into the model's inputs
    run       the model runs, all runs of the batch together
    scatter   the results are divided and written into the slots
    write     the answer is found, rendered and given to the connection
    take      the client takes the answer, if it does not do so at once

So the phases add up to the whole. If no worker answered the request, the time between its
acceptance and its end is one phase, `wait`.

A request to a model on a device has one more time, `copy`: how long the device copied the rows of
its batch, and their results. It is no phase, because the device copies during others: during `run`,
or during `queue` while it runs the batch before.
"""

from typing import Final, NamedTuple

from ringbatch.shm.attempts import copy_ns_in, runs_in
from ringbatch.shm.slot import Answer, Reason

PHASES: Final = ("read", "wait", "queue", "gather", "run", "scatter", "write", "take")
TIMES: Final = (*PHASES[: PHASES.index("run")], "copy", *PHASES[PHASES.index("run") :])
"""Names of a breakdown's times, as people read them: the phases, and `copy`."""

_REASONS: Final = {int(reason): reason.name.lower() for reason in Reason}
_RETRY: Final = int(Reason.RETRY)


class Breakdown(NamedTuple):
    """Phases of a request in nanoseconds, 0 for those it did not have, and facts of its batch.

    Attributes:
        batch: its number.
        batch_rows: instances in it; 0 if the request was in none.
        reason: why it was closed; empty if the request was in none.
        attempts: how many times it was run.
        share: the part of `queue` in which later requests of other accounts went first.
        copy: how long a device copied rows and results of the batch; in no sum of phases.
    """

    read: int
    wait: int
    queue: int = 0
    gather: int = 0
    run: int = 0
    scatter: int = 0
    write: int = 0
    take: int = 0
    batch: int = 0
    batch_rows: int = 0
    reason: str = ""
    attempts: int = 0
    share: int = 0
    copy: int = 0

    @property
    def phases(self) -> tuple[int, ...]:
        """Times of the phases, in the order of `PHASES`."""
        return (
            self.read,
            self.wait,
            self.queue,
            self.gather,
            self.run,
            self.scatter,
            self.write,
            self.take,
        )

    @property
    def times(self) -> tuple[int, ...]:
        """Times in nanoseconds, in the order of `TIMES`."""
        read, wait, queue, gather, *rest = self.phases
        return (read, wait, queue, gather, self.copy, *rest)

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.phases)

    def cause(self, rows: int) -> str:
        """Return the phase that took longest, or what was to blame for it.

        The queue is `retry` after a worker's death. It is `share` if later requests of other
        accounts went first during most of it. A run that others shared is `batch`.

        Args:
            rows: instances of the request; 0 if unknown.
        """
        phases = self.phases
        phase = PHASES[phases.index(max(phases))]
        if phase == "queue" and self.reason == _REASONS[_RETRY]:
            return "retry"
        if phase == "queue" and 2 * self.share > self.queue:
            return "share"
        if phase == "run" and self.batch_rows > rows > 0:
            return "batch"
        return phase


def reason_name(reason: int) -> str:
    """Return the name of a `Reason` as clients know it; empty if there is none."""
    return _REASONS.get(reason, "")


def breakdown(
    began_ns: int, accepted_ns: int, stamps: Answer | None, ended_ns: int, take_ns: int = 0
) -> Breakdown:
    """Return the breakdown of a request.

    Args:
        began_ns: when its first byte came; 0 if all of it came at once.
        accepted_ns: when all of it was there.
        stamps: of its slot; None if it had no slot, or left it without an answer.
        ended_ns: when its answer was ready to be written.
        take_ns: how long its client let the answer wait.
    """
    read = max(accepted_ns - began_ns, 0) if began_ns else 0
    if stamps is None:
        return Breakdown(read, ended_ns - accepted_ns, take=take_ns)
    # What did not happen took no time. A worker that lies harms its own model's figures only.
    began = _between(accepted_ns, stamps.began_ns, ended_ns)
    gathered = _between(began, stamps.gathered_ns, ended_ns)
    ran = _between(gathered, stamps.ran_ns, ended_ns)
    finished = _between(ran, stamps.finished_ns, ended_ns)
    if not stamps.began_ns:
        # It came to no run: it was answered at the end of its wait in a queue.
        began = gathered = ran = finished
    return Breakdown(
        read,
        0,
        began - accepted_ns,
        gathered - began,
        ran - gathered,
        finished - ran,
        ended_ns - finished,
        take_ns,
        stamps.batch,
        stamps.batch_rows,
        reason_name(stamps.reason) if stamps.batch_rows else "",
        runs_in(stamps.attempts),
        began - _between(accepted_ns, stamps.overtaken_ns, began) if stamps.overtaken_ns else 0,
        copy_ns_in(stamps.attempts),
    )


def _between(least: int, instant: int, most: int) -> int:
    """Return an instant, clamped to its bounds; if these cross, the upper one."""
    return min(max(instant, least), most)
