"""The collector process: waits, steps the collector, watches for the supervisor's end.

Started by the supervisor as ``python -m ringbatch.engine.collect``; what it must know arrives as
one message on the control socket.
"""

import argparse
import os
import sys
import time
from queue import SimpleQueue
from typing import Any

from ringbatch.engine import process
from ringbatch.engine.collector import Collector
from ringbatch.engine.collector_loop import Loop
from ringbatch.engine.messages import ControlSocket
from ringbatch.shm.counters import Counters
from ringbatch.shm.owner import start_time_of
from ringbatch.shm.process import settle
from ringbatch.shm.segment import Segment
from ringbatch.shm.spinning import where_cpus_allow

SPIN_NS = 60_000
"""How long the collector watches its doorbell: some twice what it takes to wake a process on
another core of a virtual machine."""


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

    def on_message(message: dict[str, Any]) -> None:
        if "died" in message:
            deaths.put((message["died"], message["killed"]))
        doorbell.wake()

    def on_orphaned() -> None:
        segment.unlink()
        os._exit(1)

    for message in others:
        on_message(message)
    stopping = process.stop_on_sigterm(doorbell.wake)
    process.watch(control, on_message, on_orphaned)
    settle()
    control.send(ready=True)
    counters = Counters(segment.words, segment.layout.collector_counters())
    loop = Loop(collector, doorbell, counters, where_cpus_allow(SPIN_NS))
    while not stopping:
        while not deaths.empty():
            number, killed = deaths.get()
            explained = collector.worker_died(number, time.monotonic_ns(), killed=killed)
            control.send(buried=number, explained=explained)
        loop.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
