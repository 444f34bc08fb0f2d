"""Collector and standby: the two processes of which one is the collector.

The kernel decides which: the standby gets the collector's lock as soon as the collector has ended.
The supervisor hears of it later, and starts a third process as the next standby.
"""

import signal
from collections.abc import Iterable

from ringbatch.engine.process.role_messages import TableChanged, ToCollector, WorkerDied
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.process_slot import RESTART_LIMIT_S, Limit, ProcessSlot


class Collectors:
    """The process slots of collector and standby.

    Attributes:
        collector: the slot of the collector, as far as the supervisor knows.
        standby: the other slot.

    Args:
        collector, standby: the slots, alike.
    """

    def __init__(self, collector: ProcessSlot, standby: ProcessSlot) -> None:
        self.collector = collector
        self.standby = standby
        # The collector has run the same code before.
        self.standby.title, self.standby.ever_ready = "standby", True
        self._standing_by: set[Child] = set()

    @property
    def slots(self) -> list[ProcessSlot]:
        """Both slots."""
        return [self.standby, self.collector]

    @property
    def vacant(self) -> bool:
        """True if no process is the collector, or about to be it."""
        return self.collector.child is None and self.standby.child not in self._standing_by

    def stands_by(self, slot: ProcessSlot, now_ns: int) -> None:
        """Note that the process in a slot is ready to take over."""
        slot.limit_ns = None
        children = {one.child for one in self.slots if one is not slot}
        self._standing_by &= {child for child in children if child is not None}
        if slot.child is not None:
            self._standing_by.add(slot.child)
        self.limit_wait(now_ns)

    def limit_wait(self, now_ns: int) -> None:
        """Limit how long the standby may take to become the collector.

        A standby behind a living collector may wait for ever. This is called whenever one of the
        two has ended.
        """
        there_is = self.collector.child is not None and self.collector.ready_ns
        for slot in self.slots:
            if slot.child is None or slot.child not in self._standing_by or slot.ready_ns:
                continue
            if there_is:
                slot.limit_ns = None
            elif slot.limit_ns is None and slot.kill_ns is None:
                slot.begins("taking the collector's place", Limit(RESTART_LIMIT_S), now_ns)

    def tell(self, message: ToCollector) -> None:
        """Send the collector a message; do nothing if there is none."""
        if self.collector.child is not None:
            self.collector.child.tell(message)

    def replace(self) -> None:
        """End the collector, so that the standby takes its place."""
        if self.collector.child is not None:
            self.collector.child.kill(signal.SIGKILL)

    def has(self, slot: ProcessSlot) -> bool:
        """Return whether a slot is one of the two."""
        return slot is self.collector or slot is self.standby

    def predecessor(self, slot: ProcessSlot) -> ProcessSlot | None:
        """Return the collector before the process in this slot; None if its end is known.

        The caller reads that collector's last messages before `promote`, so that no requests are
        reclaimed twice.
        """
        is_there = self.collector.child is not None and self.collector.ready_ns
        return self.collector if slot is self.standby and is_there else None

    def heir(self, ended: ProcessSlot) -> ProcessSlot | None:
        """Return the slot of the collector after the one in another slot has ended, if it is known.

        If both processes report at once that they are the collector, their order is unknown. It
        shows once one of them has ended.
        """
        known = self.standby.child is not None and self.standby.ready_ns
        return self.standby if ended is self.collector and known else None

    def promote(self, slot: ProcessSlot, workers: Iterable[ProcessSlot]) -> None:
        """Make the process in a slot the collector.

        Args:
            slot: one of the two.
            workers: the slots of all workers; the collector gets a message for each that has ended.
        """
        if slot is self.standby:
            self.collector, self.standby = slot, self.collector
            self.collector.title, self.standby.title = "collector", "standby"
        for worker in workers:
            self._tell_death(worker)
        # The table may have changed since this one read it; the message went to the one before.
        self.tell(TableChanged())

    def worker_died(self, slot: ProcessSlot, *, killed: bool) -> None:
        """Have the present or the next collector take back a worker's requests.

        Args:
            slot: its process has ended, with proof.
            killed: True if by SIGKILL.
        """
        slot.unreclaimed = killed
        self._tell_death(slot)

    def _tell_death(self, slot: ProcessSlot) -> None:
        if slot.worker is not None and slot.unreclaimed is not None:
            self.tell(WorkerDied(slot.worker, slot.unreclaimed))
