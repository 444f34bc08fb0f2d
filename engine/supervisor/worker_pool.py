"""The worker pool: the workers that an engine has, and who of them may end.

A number is given to another worker when two things are certain: the process that had it has ended,
and the collector expects nothing of it any more. It says so, or never knew of it.
"""

import signal
import time
from collections.abc import Collection
from typing import Final

from ringbatch.engine.process.role_messages import Dismissed
from ringbatch.engine.supervisor.process_slot import ProcessSlot

_KILL_AFTER_NS: Final = 5_000_000_000
"""What a worker gets to end by itself."""


class WorkerPool:
    """The process slots of one engine's workers.

    Attributes:
        workers: by number.
    """

    def __init__(self) -> None:
        self.workers: dict[int, ProcessSlot] = {}

    @property
    def ready(self) -> tuple[int, int]:
        """How many are ready of those that are to last, and how many these are."""
        lasting = [slot for slot in self.workers.values() if slot.lasting]
        return sum(bool(slot.ready_ns and slot.child) for slot in lasting), len(lasting)

    def add(self, number: int, slot: ProcessSlot) -> None:
        """A worker that is to be started while the engine serves, and not again where it dies,
        until its change is made."""
        slot.lasting = slot.known = False
        self.workers[number] = slot

    def end(self, slot: ProcessSlot) -> None:
        """End a worker that nothing is expected of; its number is free once its process has
        ended."""
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
        """Its process has ended, and its number is free."""
        assert slot.worker is not None, "a pool has workers alone"
        del self.workers[slot.worker]

    def release(self, number: int, entered: Collection[int]) -> None:
        """The collector says: nothing is expected of a worker any more.

        Args:
            number: which; an earlier collector may have meant an earlier worker of that number.
            entered: the numbers of those that the table has.
        """
        slot = self.workers.get(number)
        if slot is not None and slot.known and number not in entered:
            self.end(slot)

    def release_unheard_of(self, entered: Collection[int]) -> None:
        """There is another collector, which may never have heard of those that the one before was
        to let go.

        Args:
            entered: as for `release`.
        """
        for number, slot in list(self.workers.items()):
            gone = slot.child is None and slot.unreclaimed is None
            if gone and not slot.lasting and number not in entered:
                self.end(slot)
