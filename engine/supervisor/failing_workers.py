"""Restarts of workers that fail every request: one of a model at a time, with back-off.

A new process cures a lost device, or leaked memory. It does not cure a fault of the model, or of
the requests; `ringbatch.engine.process.respawn.Renewals` limits how often it is tried. Until then
the worker goes on, as an answer of 500 is better than none. One good answer shows that it needs no
restart any more. The other workers of the model wait until the new process is ready.
"""

import logging
import signal
from collections.abc import Callable
from typing import Final

from ringbatch.engine.process.role_messages import FailsAll
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.descriptors import WorkerWords
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.supervisor")

LOOK_NS: Final = 500_000_000
"""Interval of looks while a failing worker waits for another of its model."""
PATIENCE_NS: Final = 60_000_000_000
"""The longest wait for another worker."""
_END_NS: Final = 5_000_000_000
"""Time for a worker to end by itself, after its present batch."""


class FailingWorkers:
    """Restarts of one engine's failing workers.

    Attributes:
        next_ns: when to look next; None while no worker is to be restarted.

    Args:
        segment: the engine's.
        served: its models.
        pool: its workers.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        segment: Segment,
        served: ServedModels,
        pool: WorkerPool,
        clock_ns: Callable[[], int],
    ) -> None:
        self.next_ns: int | None = None
        self._segment = segment
        self._served = served
        self._pool = pool
        self._clock_ns = clock_ns

    def heard(self, slot: ProcessSlot, said: FailsAll) -> None:
        """Note that a worker's model fails every request."""
        if slot.child is None or not slot.lasting or slot.renewing or slot.renew_ns is not None:
            return
        now_ns = self._clock_ns()
        good_ns = 0
        if slot.run_batches(self._segment) >= said.batches:
            # The last batch of the row is not counted yet.
            good_ns = now_ns - slot.ready_ns - said.for_ns
        slot.renewals = slot.renewals.after(good_ns)
        slot.renew_ns = slot.renewals.due_ns(now_ns)
        logger.error(
            "%s [%d] fails every request, %d batches in a row in %.0f s; of the last one, %s; "
            "it is started anew %s",
            slot.title,
            slot.child.pid,
            said.batches,
            said.for_ns / 1e9,
            said.why,
            "now" if slot.renew_ns == now_ns else f"in {(slot.renew_ns - now_ns) / 1e9:.0f} s",
        )
        self.next_ns = now_ns

    def step(self) -> None:
        """End the workers whose restart is due, if it is time to look."""
        now_ns = self._clock_ns()
        if self.next_ns is None or now_ns < self.next_ns:
            return
        self.next_ns = None
        for slot in list(self._pool.workers.values()):
            if slot.renew_ns is None:
                continue
            if not self._fails(slot):
                slot.renew_ns = None
                continue
            if slot.renew_ns <= now_ns and not self._must_wait(slot, slot.renew_ns, now_ns):
                self._end(slot, now_ns)
                continue
            next_ns = max(slot.renew_ns, now_ns + LOOK_NS)
            self.next_ns = next_ns if self.next_ns is None else min(self.next_ns, next_ns)

    def _fails(self, slot: ProcessSlot) -> bool:
        """Return whether a worker still fails every request, and stays part of the engine."""
        if slot.worker is None or slot.child is None or not slot.lasting:
            return False
        first = self._segment.layout.worker(slot.worker)
        return bool(self._segment.words[first + WorkerWords.FAILING])

    def _must_wait(self, slot: ProcessSlot, due_ns: int, now_ns: int) -> bool:
        """Return whether another worker of the model is not ready yet."""
        if now_ns >= due_ns + PATIENCE_NS:
            return False
        workers = self._pool.workers
        others = (
            workers[number]
            for spec in self._served.entries
            if slot.worker in spec.workers
            for number in spec.workers
            if number in workers and number != slot.worker
        )
        return any(
            other.lasting and (other.renewing or other.child is None or not other.ready_ns)
            for other in others
        )

    def _end(self, slot: ProcessSlot, now_ns: int) -> None:
        assert slot.child is not None, "it fails"
        slot.renewals = slot.renewals.begun(now_ns)
        slot.renew_ns, slot.renewing = None, True
        slot.error = "it failed every request"
        slot.child.kill(signal.SIGTERM)
        slot.kill_ns = now_ns + _END_NS
