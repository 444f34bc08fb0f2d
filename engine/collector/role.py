"""The collector process: waits for its turn, steps the collector, watches for its supervisor's end.

Started by the supervisor as ``python -m ringbatch.engine.collector.role``, twice; what it must know
comes as one message on the control socket. The one that has the collector's lock is the collector,
the other stands by, with everything done that takes time, until the kernel gives it the lock.
"""

import argparse
import faulthandler
import os
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from typing import assert_never

from setproctitle import setproctitle

from ringbatch.engine.collector.account_limits import LimitTable
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.key_limits import KeyLimits
from ringbatch.engine.collector.loop import Loop
from ringbatch.engine.process import startup as process
from ringbatch.engine.process.control_socket import ControlSocket
from ringbatch.engine.process.role_commands import (
    START_COLLECTOR,
    TO_COLLECTOR,
    Drain,
    ReadTable,
    ReclaimWorker,
    StartCollector,
    ToCollector,
)
from ringbatch.engine.process.role_events import StandingBy, WorkerHung, WorkerReclaimed
from ringbatch.shm.counters import Counters
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.host.process import settle
from ringbatch.shm.segment import Segment
from ringbatch.shm.spinning import where_cpus_allow
from ringbatch.shm.wakeup import Wakeup

SPIN_NS = 60_000
"""Longest spin at the doorbell: some twice the time to wake a process on another core of a virtual
machine."""


def main() -> int:
    """Run the collector until the supervisor ends it."""
    parser = argparse.ArgumentParser(prog="ringbatch collector")
    parser.add_argument("--control-fd", type=int, required=True)
    control = ControlSocket.from_fd(parser.parse_args().control_fd)
    start = control.receive(START_COLLECTOR)
    if start is None:
        return 1
    process.begin("collector", start.log_level, control)
    # One that hangs and is ended says where it stood.
    faulthandler.enable()
    try:
        _collect(control, start)
    except StartupError as error:
        control.send(Failed(str(error)))
        return 1
    return 0


def _collect(control: ControlSocket, start: StartCollector) -> None:
    """Stand by, and then be the collector until the supervisor ends it.

    Raises:
        StartupError: it cannot start.
    """
    segment = Segment.attach(start.segment)
    lanes = [segment.lane_doorbell(lane) for lane in range(segment.layout.lanes)]
    workers = [segment.worker_doorbell(worker) for worker in range(segment.layout.workers)]
    doorbell = segment.collector_doorbell()
    deaths = _reported_deaths(control, segment, doorbell)
    settle()
    _wait_for_lock(control, segment)
    stopping = process.stop_on_sigterm(doorbell.wake)
    collector = Collector(
        segment,
        lambda lane: lanes[lane].wake(),
        lambda worker: workers[worker].wake(),
        end_worker=lambda number: control.send(WorkerHung(number)),
        notify_supervisor=control.send,
    )
    limits, changed_limits = _account_limits(start, segment, doorbell)
    collector.gate.set(limits)
    collector.start(time.monotonic_ns())
    control.send(Ready())
    counters = Counters(segment.words, segment.layout.collector_counters())
    loop = Loop(collector, doorbell, counters, where_cpus_allow(SPIN_NS))
    while not stopping:
        while not deaths.empty():
            died = deaths.get()
            explained = collector.worker_died(died.worker, time.monotonic_ns(), killed=died.killed)
            control.send(WorkerReclaimed(died.worker, explained))
        while not changed_limits.empty():
            collector.gate.set(changed_limits.get())
        loop.turn()


def _reported_deaths(
    control: ControlSocket, segment: Segment, doorbell: Wakeup
) -> SimpleQueue[ReclaimWorker]:
    """Return the queue of workers that have died, by the supervisor's messages from now on.

    If the supervisor itself has died, this process ends.
    """
    deaths: SimpleQueue[ReclaimWorker] = SimpleQueue()

    def on_message(message: ToCollector) -> None:
        match message:
            case ReclaimWorker():
                deaths.put(message)
            case ReadTable() | Drain():
                pass  # Its next step looks at the segment, where that stands.
            case _:
                assert_never(message)
        doorbell.wake()

    def on_orphaned() -> None:
        segment.unlink()
        os._exit(1)

    process.watch(control, TO_COLLECTOR, on_message, on_orphaned)
    return deaths


def _wait_for_lock(control: ControlSocket, segment: Segment) -> None:
    """Stand by until this process has the collector's lock."""
    setproctitle("ringbatch: standby")
    control.send(StandingBy())
    segment.lock_collector()
    setproctitle("ringbatch: collector")


def _account_limits(
    start: StartCollector, segment: Segment, doorbell: Wakeup
) -> tuple[LimitTable, SimpleQueue[LimitTable]]:
    """Return the limits of accounts, and the queue of those that a changed file of keys sets."""
    limits = LimitTable(start.account_limits)
    changed: SimpleQueue[LimitTable] = SimpleQueue()

    def on_change(table: LimitTable) -> None:
        changed.put(table)
        doorbell.wake()

    if start.api_keys:
        keys = KeyLimits(start.account_limits, Path(start.api_keys), segment.identity)
        limits = keys.look() or limits
        keys.watch(on_change)
    return limits, changed


if __name__ == "__main__":
    sys.exit(main())
