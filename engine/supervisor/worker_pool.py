"""Worker pool: the workers of an engine, and which of them may end.

A number is given to another worker once two things are certain: its former process has ended, and
the collector expects nothing of that worker any more. The collector says so, or never knew of it.
"""

import signal
import time
from collections.abc import Collection
from typing import Final

from ringbatch.engine.process.role_messages import Dismissed
from ringbatch.engine.supervisor.process_slot import ProcessSlot

_KILL_AFTER_NS: Final = 5_000_000_000
"""Time for a worker to end by itself."""


class WorkerPool:
    """Process slots of one engine's workers.

    Attributes:
        workers: by number.
    """

    def __init__(self) -> None:
        self.workers: dict[int, ProcessSlot] = {}

    @property
    def ready(self) -> tuple[int, int]:
        """Number of lasting workers that are ready, and number of lasting workers."""
        lasting = [slot for slot in self.workers.values() if slot.lasting]
        return sum(bool(slot.ready_ns and slot.child) for slot in lasting), len(lasting)

    def add(self, number: int, slot: ProcessSlot) -> None:
        """Add a worker that is started while the engine serves.

        Until its change is made, it is not restarted if it dies.
        """
        slot.lasting = slot.known = False
        self.workers[number] = slot

    def end(self, slot: ProcessSlot) -> None:
        """End a worker that nothing is expected of; its process's end frees its number."""
        slot.let_go()
        slot.released = True
        if slot.child is None:
            self.remove(slot)
        else:
            if slot.ready_ns:
                slot.child.tell(Dismissed())
            slot.child.kill(signal.SIGTERM)
            slot.kill_ns = time.monotonic_ns() + _KILL_AFTER_NS

    def remove(self, slot: ProcessSlot) -> None:
        """Remove a worker whose process has ended, and free its number."""
        assert slot.worker is not None, "a pool has workers alone"
        del self.workers[slot.worker]

    def release(self, number: int, entered: Collection[int]) -> None:
        """Let a worker go, as the collector expects nothing of it any more.

        Args:
            number: of the worker; an earlier collector may have meant an earlier worker of that
                number.
            entered: the numbers of the workers in the table.
        """
        slot = self.workers.get(number)
        if slot is not None and slot.known and number not in entered:
            self.end(slot)

    def release_unheard_of(self, entered: Collection[int]) -> None:
        """Release the leaving workers of an earlier collector, after a failover.

        The new collector may never have heard of them.

        Args:
            entered: as for `release`.
        """
        for number, slot in list(self.workers.items()):
            gone = slot.child is None and slot.unreclaimed is None
            if gone and not slot.lasting and number not in entered:
                self.end(slot)
