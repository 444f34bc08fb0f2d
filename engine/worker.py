"""The worker process: holds one instance of a model and runs the batches it is given.

Started by the supervisor as ``python -m ringbatch.engine.worker``; what it must know arrives as
one message on the control socket. It opens the model file, says what the model takes and
returns, and once it knows the segment, loads the model and takes tasks.
"""

import argparse
import faulthandler
import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from ringbatch.engine import placement, process
from ringbatch.engine.messages import (
    ControlSocket,
    Report,
    ReportKind,
    report_words,
    tasks,
)
from ringbatch.engine.model import Model, Options, failure
from ringbatch.engine.runner import Runner
from ringbatch.engine.runtimes import open_model
from ringbatch.shm.counters import Counters, WorkerCounter
from ringbatch.shm.errors import StartupError
from ringbatch.shm.holder import Holder
from ringbatch.shm.layout import (
    REPORT_WORDS,
    TASK_WORDS,
    WORD,
    WORKER_PID,
    WORKER_STATE,
    WorkerState,
)
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment

logger = logging.getLogger("ringbatch.worker")

RETRY_S = 0.01
"""How soon answers are announced again that found no room in a lane's ring."""


class Worker:
    """The role, to be stepped.

    Args:
        segment: the memory.
        number: which worker this is.
        runner: runs the batches.
        holder: the runner's.
        wake_collector: rings the collector's doorbell.
    """

    def __init__(
        self, segment: Segment, number: int, runner: Runner, holder: Holder, wake_collector: Any
    ) -> None:
        layout, words = segment.layout, segment.words
        self._tasks = Consumer(words, layout.task_ring(number), TASK_WORDS)
        self._reports = Producer(words, layout.report_ring(number), REPORT_WORDS)
        self._counters = Counters(words, layout.worker_counters(number))
        self._runner = runner
        self._holder = holder
        self._wake_collector = wake_collector
        # Whatever stands there was meant for an earlier process of this number.
        self._tasks.skip()

    def begin(self) -> None:
        """Tell the collector that this worker takes tasks."""
        self._report(Report(ReportKind.READY, os.getpid(), 0))

    def step(self) -> int:
        """Run the tasks there are; how many."""
        done = 0
        self._holder.flush()
        for mark, references in tasks(self._tasks.take()):
            before_ns = self._runner.run_ns
            self._runner.run(references, mark)
            run_ns = self._runner.run_ns - before_ns
            self._holder.flush()
            kind = ReportKind.FAILED if self._runner.failed else ReportKind.DONE
            self._report(Report(kind, mark.batch, run_ns))
            self._counters.add(WorkerCounter.BATCHES)
            self._counters.add(WorkerCounter.ROWS, mark.rows)
            self._counters.add(WorkerCounter.RUN_NS, run_ns)
            done += 1
        return done

    def _report(self, report: Report) -> None:
        fits = self._reports.offer(report_words(report))
        assert fits, "a worker has at most two reports under way"
        self._wake_collector()


def main() -> int:
    """Run a worker until the supervisor ends it."""
    parser = argparse.ArgumentParser(prog="ringbatch worker")
    parser.add_argument("--control-fd", type=int, required=True)
    control = ControlSocket.from_fd(parser.parse_args().control_fd)
    start = _message(control)
    process.begin(f"worker {start['title']}", start["log_level"])
    process.die_with_parent(start["parent_pid"])
    # The supervisor ends a worker that hangs with SIGABRT; this writes down what each thread does.
    faulthandler.enable()
    path = Path(start["path"])
    try:
        options = Options(threads=placement.threads(os.environ), **start["options"])
        model = open_model(start["runtime"], path, options)
        control.send(
            inputs=[tensor.to_json() for tensor in model.inputs],
            outputs=[tensor.to_json() for tensor in model.outputs],
        )
        segment = Segment.attach(_message(control)["segment"])
        _load(model, path, segment, start["number"])
    except StartupError as error:
        control.send(error=str(error))
        return 1
    _serve(segment, start, model, control)
    return 0


def _load(model: Model, path: Path, segment: Segment, number: int) -> None:
    _say(segment, number, WorkerState.LOADING)
    try:
        model.load()
    except (Exception, SystemExit) as error:
        logger.error("load() raised", exc_info=error)
        raise StartupError(failure(path, error, "load()")) from error


def _serve(segment: Segment, start: dict[str, Any], model: Model, control: ControlSocket) -> None:
    number = start["number"]
    lanes = [segment.lane_doorbell(lane) for lane in range(segment.layout.lanes)]
    holder = Holder(segment, number, lambda lane: lanes[lane].wake())
    (spec,) = (spec for spec in segment.models if number in spec.workers)
    runner = Runner(model, spec.name, holder, time.monotonic_ns, batched=spec.batched)
    collector = segment.collector_doorbell()
    doorbell = segment.worker_doorbell(number)
    worker = Worker(segment, number, runner, holder, collector.wake)
    stopping: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        stopping.append(signum)
        doorbell.wake()

    signal.signal(signal.SIGTERM, stop)
    process.watch(control, lambda _message: None, lambda: os._exit(1))
    process.settle()
    _say(segment, number, WorkerState.READY)
    worker.begin()
    control.send(ready=True)
    while not stopping:
        worker.step()
        doorbell.wait(RETRY_S if holder.delayed else None)


def _say(segment: Segment, number: int, state: WorkerState) -> None:
    words, offset = segment.words, segment.layout.worker(number)
    words[(offset + WORKER_PID) // WORD] = os.getpid()
    words[(offset + WORKER_STATE) // WORD] = state


def _message(control: ControlSocket) -> dict[str, Any]:
    messages = control.receive()
    if messages is None:
        raise SystemExit(1)
    assert len(messages) == 1, "the supervisor waits for an answer before it says more"
    return messages[0]


if __name__ == "__main__":
    sys.exit(main())
