"""Upkeep: what the supervisor of a serving engine does at instants of its own.

It scales workers, starts awaited ones early, replaces failing ones, and looks at model files and at
the engine's names in /dev/shm.
"""

import time
from functools import partial

from ringbatch.engine.supervisor.autoscaler import Autoscaler
from ringbatch.engine.supervisor.early_restarts import EarlyRestarts
from ringbatch.engine.supervisor.failing_workers import FailingWorkers
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.model_file_watch import ModelFileWatch
from ringbatch.engine.supervisor.shm_names_check import ShmNamesCheck
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.segment import Segment


class Upkeep:
    """Regular work of one engine from the time that it serves.

    Attributes:
        failing: restarts of workers that fail every request.

    Args:
        segment: the engine's.
        changes: of its models.
        pool: its workers.
        loop: the supervisor's.
    """

    def __init__(
        self, segment: Segment, changes: ModelChanges, pool: WorkerPool, loop: Loop
    ) -> None:
        served, clock_ns = changes.served, time.monotonic_ns
        self._loop = loop
        self._names = ShmNamesCheck(segment.lost_names, clock_ns)
        self._scaler = Autoscaler(segment, changes, pool, HostGauge(), clock_ns)
        self._early = EarlyRestarts(segment, served, pool, clock_ns)
        self.failing = FailingWorkers(segment, served, pool, clock_ns)
        watch = ModelFileWatch(lambda: served.files, lambda: served.differing)
        loop.watch(watch, lambda: changes.differ(watch.take()), partial(loop.drop, watch))

    def step(self) -> None:
        """Do what is due.

        Raises:
            NamesLost: no process can attach any more.
        """
        self._names.step()
        self._loop.guard(self._scaler.step, self._scaler.pause)
        self._loop.guard(self._early.step)
        self._loop.guard(self.failing.step)

    @property
    def next_ns(self) -> int:
        """The next instant at which something is due."""
        parts = (self._names, self._scaler, self._early, self.failing)
        return min(filter(None, (part.next_ns for part in parts)))
