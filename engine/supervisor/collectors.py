"""The two processes of which one is the collector, while the other stands by to be it.

Which one that is, the kernel decides: the standby gets the collector's lock as soon as the
collector has ended. The supervisor hears of it later, and has a third process stand by then.
"""

import signal
from collections.abc import Iterable

from ringbatch.engine.process.role_messages import TableChanged, ToCollector, WorkerDied
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.process_slot import RESTART_LIMIT_S, Limit, ProcessSlot


class Collectors:
    """Their two process slots.

    Attributes:
        collector: of the one that is it, as far as the supervisor has heard.
        standby: of the other.

    Args:
        collector, standby: the slots, alike.
    """

    def __init__(self, collector: ProcessSlot, standby: ProcessSlot) -> None:
        self.collector = collector
        self.standby = standby
        # What it does, the collector did before it.
        self.standby.title, self.standby.ever_ready = "standby", True
        self._standing_by: set[Child] = set()

    @property
    def slots(self) -> list[ProcessSlot]:
        """Both."""
        return [self.standby, self.collector]

    @property
    def vacant(self) -> bool:
        """Whether nobody is the collector, or about to be it."""
        return self.collector.child is None and self.standby.child not in self._standing_by

    def stands_by(self, slot: ProcessSlot, now_ns: int) -> None:
        """The process in a slot has nothing left to do but to wait for its turn."""
        slot.limit_ns = None
        children = {one.child for one in self.slots if one is not slot}
        self._standing_by &= {child for child in children if child is not None}
        if slot.child is not None:
            self._standing_by.add(slot.child)
        self.limit_wait(now_ns)

    def limit_wait(self, now_ns: int) -> None:
        """Whoever stands by may do so for ever; but while nobody is the collector, it is about to
        be it, which takes a moment. To be called whenever one of the two has ended."""
        there_is = self.collector.child is not None and self.collector.ready_ns
        for slot in self.slots:
            if slot.child is None or slot.child not in self._standing_by or slot.ready_ns:
                continue
            if there_is:
                slot.limit_ns = None
            elif slot.limit_ns is None and slot.kill_ns is None:
                slot.begins("taking the collector's place", Limit(RESTART_LIMIT_S), now_ns)

    def tell(self, message: ToCollector) -> None:
        """Send the collector a message; nothing happens where there is none."""
        if self.collector.child is not None:
            self.collector.child.tell(message)

    def replace(self) -> None:
        """End the collector, so that the standby takes its place."""
        if self.collector.child is not None:
            self.collector.child.kill(signal.SIGKILL)

    def has(self, slot: ProcessSlot) -> bool:
        """Whether a slot is one of the two."""
        return slot is self.collector or slot is self.standby

    def predecessor(self, slot: ProcessSlot) -> ProcessSlot | None:
        """The slot of the collector that has ended before the process in this slot is it, where
        nobody has heard of its end yet.

        What it has said is to be heard before `promote`: what it has reclaimed is not to be
        reclaimed again.
        """
        is_there = self.collector.child is not None and self.collector.ready_ns
        return self.collector if slot is self.standby and is_there else None

    def heir(self, ended: ProcessSlot) -> ProcessSlot | None:
        """The slot of the process that is the collector since the one in another slot has ended,
        where that is known.

        Who hears of two at once that they are the collector does not hear which was it before the
        other; that shows only once one of them has ended.
        """
        known = self.standby.child is not None and self.standby.ready_ns
        return self.standby if ended is self.collector and known else None

    def promote(self, slot: ProcessSlot, workers: Iterable[ProcessSlot]) -> None:
        """The process in a slot, one of the two, is ready: it is the collector.

        Args:
            slot: which.
            workers: the slots of all workers; of those that have ended, the collector is told.
        """
        if slot is self.standby:
            self.collector, self.standby = slot, self.collector
            self.collector.title, self.standby.title = "collector", "standby"
        for worker in workers:
            self._tell_death(worker)
        # It may have changed since this one read it, and whoever was told is gone.
        self.tell(TableChanged())

    def worker_died(self, slot: ProcessSlot, *, killed: bool) -> None:
        """Have what a worker held taken back; where there is no collector now, by the next one.

        Args:
            slot: its process has ended, with proof.
            killed: whether with SIGKILL.
        """
        slot.unreclaimed = killed
        self._tell_death(slot)

    def _tell_death(self, slot: ProcessSlot) -> None:
        if slot.worker is not None and slot.unreclaimed is not None:
            self.tell(WorkerDied(slot.worker, slot.unreclaimed))
