"""The collector process: waits, steps the collector, watches for the supervisor's end.

Started by the supervisor as ``python -m ringbatch.engine.collect``; what it must know arrives as
one message on the control socket.
"""

import argparse
import os
import signal
import sys
import time
from queue import SimpleQueue
from types import FrameType
from typing import Any

from ringbatch.engine import process
from ringbatch.engine.collector import Collector
from ringbatch.engine.messages import ControlSocket
from ringbatch.shm.counters import CollectorCounter, Counters
from ringbatch.shm.owner import start_time_of
from ringbatch.shm.process import settle
from ringbatch.shm.segment import Segment
from ringbatch.shm.wakeup import Wakeup

SWEEP_S = 1.0
"""While requests are in flight, everything is looked at this often even if nobody rings."""
GRACE_S = 0.01
"""How long after what it announces a wake-up may come."""


class Loop:
    """When to step the collector: when rung, when it asked to, and a safety sweep.

    Args:
        collector: the role.
        doorbell: what rings.
        counters: the collector's own.
    """

    def __init__(self, collector: Collector, doorbell: Wakeup, counters: Counters) -> None:
        self._collector = collector
        self._doorbell = doorbell
        self._counters = counters

    def turn(self) -> None:
        """Step once, and sleep until there may be more to do."""
        until_ns = self._collector.step(time.monotonic_ns())
        timeout_s = SWEEP_S if self._collector.in_flight else None
        if until_ns is not None:
            left_s = (until_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            timeout_s = min(left_s, SWEEP_S)
        if not self._collector.may_sleep():
            return
        if not self._collector.rung_for_requests and timeout_s is None:
            # No worker at all; but what its client no longer waits for must give back its slot.
            timeout_s = SWEEP_S
        if not self._doorbell.wait(timeout_s) and timeout_s == SWEEP_S:
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


def main() -> int:
    """Run the collector until the supervisor ends it."""
    parser = argparse.ArgumentParser(prog="ringbatch collector")
    parser.add_argument("--control-fd", type=int, required=True)
    control = ControlSocket.from_fd(parser.parse_args().control_fd)
    messages = control.receive()
    if messages is None:
        return 1
    start, *others = messages
    process.begin("collector", start["log_level"])
    segment = Segment.attach(start["segment"])
    lanes = [segment.lane_doorbell(lane) for lane in range(segment.layout.lanes)]
    workers = [segment.worker_doorbell(worker) for worker in range(segment.layout.workers)]
    doorbell = segment.collector_doorbell()
    # Nanoseconds since boot outrun any count of batches, so numbers never come twice.
    collector = Collector(
        segment,
        lambda lane: lanes[lane].wake(),
        lambda worker: workers[worker].wake(),
        first_batch=time.monotonic_ns(),
        alive=lambda pid: start_time_of(pid) is not None,
        end_worker=lambda number: control.send(hung=number),
        say=control.send,
    )
    deaths: SimpleQueue[tuple[int, bool]] = SimpleQueue()
    stopping: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        stopping.append(signum)
        doorbell.wake()

    def on_message(message: dict[str, Any]) -> None:
        if "died" in message:
            deaths.put((message["died"], message["killed"]))
        doorbell.wake()

    def on_orphaned() -> None:
        segment.unlink()
        os._exit(1)

    for message in others:
        on_message(message)
    signal.signal(signal.SIGTERM, stop)
    process.watch(control, on_message, on_orphaned)
    settle()
    control.send(ready=True)
    counters = Counters(segment.words, segment.layout.collector_counters())
    loop = Loop(collector, doorbell, counters)
    while not stopping:
        while not deaths.empty():
            number, killed = deaths.get()
            explained = collector.worker_died(number, time.monotonic_ns(), killed=killed)
            control.send(buried=number, explained=explained)
        loop.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
