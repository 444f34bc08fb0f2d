"""The worker pool: who is started while the engine serves, and who may end.

A number is given to another worker when two things are certain: the process that had it has ended,
and the collector expects nothing of it any more. It says so, or never knew of it.
"""

import signal
import time
from collections.abc import Callable
from typing import Final

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.process_slot import ProcessSlot

_KILL_AFTER_NS: Final = 5_000_000_000
"""What a worker gets to end by itself."""


class WorkerPool:
    """The process slots of one engine's workers.

    Attributes:
        workers: by number.

    Args:
        make: makes the process slot of a worker, from its number, its model, which of that model's
            workers it is, and what it is to load.
        fill: starts a process in a slot.
        tell_segment: tells the process in a slot of the segment.
        tell_collector: has the collector look at the table.
        is_entered: whether the table has the worker of a number.
    """

    def __init__(
        self,
        make: Callable[[int, ModelConfig, int, ModelFile], ProcessSlot],
        fill: Callable[[ProcessSlot], None],
        tell_segment: Callable[[ProcessSlot], None],
        tell_collector: Callable[[], None],
        is_entered: Callable[[int], bool],
    ) -> None:
        self.workers: dict[int, ProcessSlot] = {}
        self._make = make
        self._fill = fill
        self._is_entered = is_entered
        self.introduce = tell_segment
        self.table_changed = tell_collector

    def start(self, number: int, model: ModelConfig, index: int, file: ModelFile) -> None:
        """As in `model_changes.Pool`."""
        self.workers[number] = slot = self._make(number, model, index, file)
        slot.lasting = slot.known = False
        self._fill(slot)

    def end(self, slot: ProcessSlot) -> None:
        """As in `model_changes.Pool`; its number is free once its process has ended."""
        slot.let_go()
        slot.released = True
        if slot.child is None:
            self.remove(slot)
        else:
            slot.child.kill(signal.SIGTERM)
            slot.kill_ns = time.monotonic_ns() + _KILL_AFTER_NS

    def remove(self, slot: ProcessSlot) -> None:
        """Its process has ended, and its number is free."""
        assert slot.worker is not None, "a pool has workers alone"
        del self.workers[slot.worker]

    def release(self, number: int) -> None:
        """The collector says: nothing is expected of a worker any more."""
        slot = self.workers.get(number)
        # An earlier collector may have meant an earlier worker of that number.
        if slot is not None and slot.known and not self._is_entered(number):
            self.end(slot)

    def collector_ready(self) -> None:
        """The new one may never have heard of those that the one before was to let go."""
        for number, slot in list(self.workers.items()):
            gone = slot.child is None and slot.unreclaimed is None
            if gone and not slot.lasting and not self._is_entered(number):
                self.end(slot)
