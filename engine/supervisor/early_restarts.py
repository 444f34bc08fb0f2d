"""Early restarts of workers whose model has waiting requests and no process.

A delay protects the host, but waiting requests wait for the whole of it. So one worker of each of
these models starts within a second of its last end, see `ringbatch.engine.process.respawn`.
"""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.process.respawn import awaited_ns
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.worker_look import WorkerLook
from ringbatch.shm.descriptors import ModelWords

LOOK_NS: Final = 100_000_000
"""Interval of looks while a worker has a delay."""


class EarlyRestarts(WorkerLook):
    """Regular look at models with waiting requests and no process, while a worker has a delay."""

    def step(self) -> None:
        """End the delays that requests wait for, if it is time to look."""
        if not any(managed.restart_ns is not None for managed in self._pool.workers.values()):
            self.next_ns = None
            return
        now_ns = self._clock_ns()
        if self.next_ns is not None and now_ns < self.next_ns:
            return
        self.next_ns = now_ns + LOOK_NS
        for processes in self._awaited():
            delayed = [managed for managed in processes if managed.restart_ns is not None]
            if delayed and all(managed.child is None for managed in processes):
                first = min(delayed, key=lambda managed: managed.ended_ns)
                assert first.restart_ns is not None, "it is delayed"
                first.restart_ns = awaited_ns(first.restart_ns, first.ended_ns)

    def _awaited(self) -> Iterator[list[ManagedProcess]]:
        """Yield the workers of each model with waiting requests and no process."""
        words, layout, workers = self._segment.words, self._segment.layout, self._pool.workers
        for spec in self._served.entries:
            if words[layout.model(spec.index) + ModelWords.AWAITED]:
                yield [workers[number] for number in spec.workers if number in workers]
