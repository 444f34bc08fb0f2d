"""Restarts of workers that fail every request: one of a model at a time, with back-off.

A new process cures a lost device, or leaked memory. It does not cure a fault of the model, or of
the requests; `ringbatch.engine.process.respawn.Renewals` limits how often it is tried. Until then
the worker goes on, as an answer of 500 is better than none. One good answer shows that it needs no
restart any more. The other workers of the model wait until the new process is ready.
"""

import logging
import signal
from typing import Final

from ringbatch.engine.process.role_events import FailsAll
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.worker_look import WorkerLook
from ringbatch.shm.descriptors import WorkerWords

logger = logging.getLogger("ringbatch.supervisor")

LOOK_NS: Final = 500_000_000
"""Interval of looks while a failing worker waits for another of its model."""
PATIENCE_NS: Final = 60_000_000_000
"""The longest wait for another worker."""
_END_NS: Final = 5_000_000_000
"""Time for a worker to end by itself, after its present batch."""


class FailingWorkers(WorkerLook):
    """Restarts of one engine's failing workers, with a look while one is to be restarted."""

    def on_fails_all(self, managed: ManagedProcess, message: FailsAll) -> None:
        """Note that a worker's model fails every request."""
        if managed.child is None or not managed.lasting or managed.renewal.expected:
            return
        now_ns = self._clock_ns()
        good_ns = 0
        if managed.run_batches(self._segment) >= message.batches:
            # The last batch of the row is not counted yet.
            good_ns = now_ns - managed.ready_ns - message.for_ns
        due_ns = managed.renewal.plan(good_ns, now_ns)
        logger.error(
            "%s [%d] fails every request, %d batches in a row in %.0f s; of the last one, %s; "
            "it is started anew %s",
            managed.title,
            managed.child.pid,
            message.batches,
            message.for_ns / 1e9,
            message.why,
            "now" if due_ns == now_ns else f"in {(due_ns - now_ns) / 1e9:.0f} s",
        )
        self.next_ns = now_ns

    def step(self) -> None:
        """End the workers whose restart is due, if it is time to look."""
        now_ns = self._clock_ns()
        if self.next_ns is None or now_ns < self.next_ns:
            return
        self.next_ns = None
        for managed in list(self._pool.workers.values()):
            due_ns = managed.renewal.due_ns
            if due_ns is None:
                continue
            if not self._fails(managed):
                managed.renewal.due_ns = None
                continue
            if due_ns <= now_ns and not self._must_wait(managed, due_ns, now_ns):
                self._end(managed, now_ns)
                continue
            next_ns = max(due_ns, now_ns + LOOK_NS)
            self.next_ns = next_ns if self.next_ns is None else min(self.next_ns, next_ns)

    def _fails(self, managed: ManagedProcess) -> bool:
        """Return whether a worker still fails every request, and stays part of the engine."""
        if managed.worker is None or managed.child is None or not managed.lasting:
            return False
        first = self._segment.layout.worker(managed.worker)
        return bool(self._segment.words[first + WorkerWords.FAILING])

    def _must_wait(self, managed: ManagedProcess, due_ns: int, now_ns: int) -> bool:
        """Return whether another worker of the model is not ready yet."""
        if now_ns >= due_ns + PATIENCE_NS:
            return False
        workers = self._pool.workers
        others = (
            workers[number]
            for spec in self._served.entries
            if managed.worker in spec.workers
            for number in spec.workers
            if number in workers and number != managed.worker
        )
        return any(
            other.lasting and (other.renewal.under_way or other.child is None or not other.ready_ns)
            for other in others
        )

    def _end(self, managed: ManagedProcess, now_ns: int) -> None:
        assert managed.child is not None, "it fails"
        managed.renewal.begin(now_ns)
        managed.error = "it failed every request"
        managed.child.kill(signal.SIGTERM)
        managed.kill_ns = now_ns + _END_NS
