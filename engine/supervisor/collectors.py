"""Collector and standby: the two processes of which one is the collector.

The kernel decides which: the standby gets the collector's lock as soon as the collector has ended.
The supervisor hears of it later, and starts a third process as the next standby.
"""

import signal
from collections.abc import Iterable

from ringbatch.engine.process.role_commands import ReadTable, ReclaimWorker, ToCollector
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.managed_process import RESTART_LIMIT_S, Limit, ManagedProcess


class Collectors:
    """The managed processes of collector and standby.

    Attributes:
        collector: the collector, as far as the supervisor knows.
        standby: the other one.

    Args:
        collector, standby: made alike.
    """

    def __init__(self, collector: ManagedProcess, standby: ManagedProcess) -> None:
        self.collector = collector
        self.standby = standby
        # The collector has run the same code before.
        self.standby.title, self.standby.ever_ready = "standby", True
        self._standing_by: set[Child] = set()

    @property
    def processes(self) -> list[ManagedProcess]:
        """Both processes."""
        return [self.standby, self.collector]

    @property
    def vacant(self) -> bool:
        """True if no process is the collector, or about to be it."""
        return self.collector.child is None and self.standby.child not in self._standing_by

    def stands_by(self, managed: ManagedProcess, now_ns: int) -> None:
        """Note that the process is ready to take over."""
        managed.limit_ns = None
        children = {one.child for one in self.processes if one is not managed}
        self._standing_by &= {child for child in children if child is not None}
        if managed.child is not None:
            self._standing_by.add(managed.child)
        self.limit_wait(now_ns)

    def limit_wait(self, now_ns: int) -> None:
        """Limit how long the standby may take to become the collector.

        A standby behind a living collector may wait for ever. This is called whenever one of the
        two has ended.
        """
        there_is = self.collector.child is not None and self.collector.ready_ns
        for managed in self.processes:
            if managed.child is None or managed.child not in self._standing_by or managed.ready_ns:
                continue
            if there_is:
                managed.limit_ns = None
            elif managed.limit_ns is None and managed.kill_ns is None:
                managed.begins("taking the collector's place", Limit(RESTART_LIMIT_S), now_ns)

    def send(self, message: ToCollector) -> None:
        """Send the collector a message; do nothing if there is none."""
        if self.collector.child is not None:
            self.collector.child.send(message)

    def replace(self) -> None:
        """End the collector, so that the standby takes its place."""
        if self.collector.child is not None:
            self.collector.child.kill(signal.SIGKILL)

    def has(self, managed: ManagedProcess) -> bool:
        """Return whether a managed process is one of the two."""
        return managed is self.collector or managed is self.standby

    def collector_before(self, managed: ManagedProcess) -> ManagedProcess | None:
        """Return the collector before this one; None if its end is known.

        The caller reads that collector's last messages before `promote`, so that no requests are
        reclaimed twice.
        """
        is_there = self.collector.child is not None and self.collector.ready_ns
        return self.collector if managed is self.standby and is_there else None

    def collector_after(self, ended: ManagedProcess) -> ManagedProcess | None:
        """Return the collector after another has ended, if it is known.

        If both processes report at once that they are the collector, their order is unknown. It
        shows once one of them has ended.
        """
        known = self.standby.child is not None and self.standby.ready_ns
        return self.standby if ended is self.collector and known else None

    def promote(self, managed: ManagedProcess, workers: Iterable[ManagedProcess]) -> None:
        """Make the process the collector.

        Args:
            managed: one of the two.
            workers: all; the collector gets a message for each that has ended.
        """
        if managed is self.standby:
            self.collector, self.standby = managed, self.collector
            self.collector.title, self.standby.title = "collector", "standby"
        for worker in workers:
            self._send_death(worker)
        # The table may have changed since this one read it; the message went to the one before.
        self.send(ReadTable())

    def worker_died(self, managed: ManagedProcess, *, killed: bool) -> None:
        """Have the present or the next collector take back a worker's requests.

        Args:
            managed: its process has ended, with proof.
            killed: True if by SIGKILL.
        """
        managed.tie.unreclaimed = killed
        self._send_death(managed)

    def _send_death(self, managed: ManagedProcess) -> None:
        if managed.worker is not None and managed.tie.unreclaimed is not None:
            self.send(ReclaimWorker(managed.worker, managed.tie.unreclaimed))
