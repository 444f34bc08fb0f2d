"""Loop of the collector process: runs its steps, and sleeps in between."""

import time
from typing import Final

from ringbatch.engine.collector.collector import Collector
from ringbatch.shm.counters import CollectorCounter, Counters
from ringbatch.shm.descriptors import BEAT_S
from ringbatch.shm.spinning import SpinningWaiter
from ringbatch.shm.wakeup import Wakeup

SWEEP_S: Final = BEAT_S
"""Everything is looked at this often even if nobody rings; and so it is seen that it moves."""
GRACE_S: Final = 0.01
"""Longest delay of a wake-up."""


class Loop:
    """Event loop of the collector: steps it when rung, when it asked to, and in a safety sweep.

    Args:
        collector: the role.
        doorbell: the doorbell that submissions and reports ring.
        counters: the collector's own.
        spin_ns: how long it watches the doorbell before it sleeps with nothing under way, if rings
            usually come as soon; 0 for never.
    """

    def __init__(
        self, collector: Collector, doorbell: Wakeup, counters: Counters, spin_ns: int = 0
    ) -> None:
        self._collector = collector
        self._doorbell = doorbell
        self._spinning = SpinningWaiter(doorbell, spin_ns)
        self._counters = counters

    def turn(self) -> None:
        """Step once, and sleep until there may be more to do."""
        until_ns = self._collector.step(time.monotonic_ns())
        timeout_s = SWEEP_S
        if until_ns is not None:
            left_s = (until_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            timeout_s = min(left_s, SWEEP_S)
        if not self._collector.prepare_to_sleep():
            return
        # While a worker runs, its core is better left to it.
        idle = until_ns is None and not self._collector.in_flight
        doorbell = self._spinning if idle and self._collector.rung_for_requests else self._doorbell
        if not doorbell.wait(timeout_s) and timeout_s == SWEEP_S:
            self._look_for_missed()

    def _look_for_missed(self) -> None:
        """Count a wake-up as missed where work stands in the segment and none comes.

        Work may stand there a moment before its wake-up, so that is waited for; and before the
        work is done, as its worker would ring too. Only after a whole sweep: a frontend that
        never rings is not to slow the others down.
        """
        late = self._collector.rung_for_requests and self._collector.has_news()
        if late and not self._doorbell.wait(GRACE_S):
            self._counters.add(CollectorCounter.MISSED_WAKEUPS)
