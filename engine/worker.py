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
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ringbatch.engine import memory_limits, placement, process
from ringbatch.engine.finite import FiniteCodec
from ringbatch.engine.forwarder import Forwarder
from ringbatch.engine.messages import (
    TOO_LATE,
    ControlSocket,
    ReportKind,
    report_words,
    tasks,
)
from ringbatch.engine.model import Model, Options, failure
from ringbatch.engine.padding import PaddedCodec, Padding, padding
from ringbatch.engine.runner import Codec, Runner
from ringbatch.engine.runtimes import open_model
from ringbatch.engine.shaping import Unfit
from ringbatch.engine.warmup import Wanted, warmed_up
from ringbatch.shm import trials
from ringbatch.shm.counters import Counters
from ringbatch.shm.errors import StartupError
from ringbatch.shm.holder import BatchMark, Holder
from ringbatch.shm.layout import (
    REPORT_WORDS,
    TASK_WORDS,
    WORD,
    WORKER_PID,
    WORKER_STATE,
    WorkerState,
)
from ringbatch.shm.manifest import ModelSpec
from ringbatch.shm.process import die_with_parent, settle
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status

logger = logging.getLogger("ringbatch.worker")

_DONE, _FAILED = ReportKind.DONE, ReportKind.FAILED
WAITED_NS = 1_000_000
"""A batch that was given this long ago stood behind another, and is looked through again."""
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
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        segment: Segment,
        number: int,
        runner: Runner | Forwarder,
        holder: Holder,
        wake_collector: Any,
        clock_ns: Callable[[], int],
    ) -> None:
        layout, words = segment.layout, segment.words
        self._tasks = Consumer(words, layout.task_ring(number), TASK_WORDS)
        self._reports = Producer(words, layout.report_ring(number), REPORT_WORDS)
        self._counters = Counters(words, layout.worker_counters(number))
        self._runner = runner
        self._holder = holder
        self._wake_collector = wake_collector
        self._clock_ns = clock_ns
        # Whatever stands there was meant for an earlier process of this number.
        self._tasks.skip()

    def begin(self) -> None:
        """Tell the collector that this worker takes tasks."""
        self._report(ReportKind.READY, os.getpid())

    def step(self) -> int:
        """Run the tasks there are; how many."""
        runner, holder = self._runner, self._holder
        holder.flush()
        found = tasks(self._tasks.take())
        for mark, references in found:
            now_ns = self._clock_ns()
            if now_ns - mark.dispatched_ns > WAITED_NS:
                mark, references = self._still_wanted(mark, references, now_ns)
                if not references:
                    holder.flush()
                    self._report(_DONE, mark.batch)
                    continue
            before_ns = runner.run_ns
            runner.run(references, mark)
            run_ns = runner.run_ns - before_ns
            holder.flush()
            self._report(_FAILED if runner.failed else _DONE, mark.batch, run_ns)
            # BATCHES, ROWS and RUN_NS.
            self._counters.add_each((1, mark.rows, run_ns))
        return len(found)

    def _still_wanted(
        self, mark: BatchMark, references: list[int], now_ns: int
    ) -> tuple[BatchMark, list[int]]:
        """What is to run of a batch that has waited behind another; the rest is answered."""
        holder = self._holder
        given_up = holder.given_up(references, now_ns)
        if not given_up:
            return mark, references
        gone = set(given_up)
        left = [ref for ref in references if ref not in gone]
        dropped = holder.read_all(given_up, mark, self._clock_ns)
        statuses = [holder.give_up(request, TOO_LATE, mark, now_ns) for request in dropped]
        expired = statuses.count(Status.EXPIRED)
        if expired:
            self._report(ReportKind.EXPIRED, mark.batch, expired)
        if expired < len(statuses):
            self._report(ReportKind.CANCELLED, mark.batch, len(statuses) - expired)
        # What a frontend wrote may have changed since the collector added it up.
        rows = max(mark.rows - sum([request.rows for request in dropped]), len(left))
        return mark._replace(rows=rows), left

    def runs_again(self, batch: int) -> None:
        """Tell the collector that a batch takes another run, so that it is not taken for hung.

        That is a courtesy: it is left out where the collector has not read the last ones.
        """
        if self._reports.waiting < REPORT_WORDS // 2:
            self._report(ReportKind.RUNS_AGAIN, batch)

    def _report(self, kind: ReportKind, first: int, second: int = 0) -> None:
        fits = self._reports.offer(report_words((kind, first, second)))
        assert fits, "a worker has few reports under way, beside some that it leaves out"
        self._wake_collector()


def main() -> int:
    """Run a worker until the supervisor ends it."""
    parser = argparse.ArgumentParser(prog="ringbatch worker")
    parser.add_argument("--control-fd", type=int, required=True)
    control = ControlSocket.from_fd(parser.parse_args().control_fd)
    start = _message(control)
    process.begin(f"worker {start['title']}", start["log_level"])
    # The supervisor ends a worker that hangs with SIGABRT; this writes down what each thread does.
    faulthandler.enable()
    memory_limits.go_first()
    memory_limits.limit_memory(start["worker_memory_bytes"])
    path = start["path"] if start["runtime"] == "http" else Path(start["path"])
    try:
        die_with_parent(start["parent_pid"])
        options = Options(threads=placement.threads(os.environ), **start["options"])
        model, padded = _shaped(open_model(start["runtime"], path, options), path, start["shape"])
        control.send(
            inputs=[tensor.to_json() for tensor in model.inputs],
            outputs=[tensor.to_json() for tensor in model.outputs],
        )
        segment = Segment.attach(_message(control)["segment"])
        _load(model, path, segment, start["number"])
        _serve(segment, start, model, padded, control)
    except StartupError as error:
        control.send(error=str(error))
        return 1
    return 0


def _shaped(model: Model, path: Path | str, shape: dict[str, Any]) -> tuple[Model, Padding | None]:
    """The model as requests see it, and how its inputs are padded, where they are."""
    if shape["max_batch_elements"] and not model.inputs:
        raise StartupError(
            f"{path}: max_batch_elements needs a model that declares its inputs, to count them"
        )
    if not shape["pad_variable_length"]:
        return model, None
    values = dict(pair.rsplit("=", 1) for pair in shape["padding_values"])
    numbers = {name: float(text) if "." in text else int(text) for name, text in values.items()}
    try:
        return padding(model, shape["length_buckets"], numbers, shape["lengths_input"])
    except Unfit as error:
        raise StartupError(f"{path}: pad_variable_length is set, but {error}") from None


def _load(model: Model, path: Path | str, segment: Segment, number: int) -> None:
    _say(segment, number, WorkerState.LOADING)
    try:
        model.load()
    except (Exception, SystemExit) as error:
        logger.error("load() raised", exc_info=error)
        raise StartupError(failure(path, error, "load()")) from error


def _warm_up(
    segment: Segment, spec: ModelSpec, runner: Runner, start: dict[str, Any], wanted: dict[str, Any]
) -> None:
    number, file = start["number"], wanted["file"]
    _say(segment, number, WorkerState.WARMING)
    tried = warmed_up(
        spec,
        runner.try_out,
        Wanted(wanted["limit_s"], wanted["length"], Path(file) if file else None),
        path=Path(start["path"]),
        title=start["title"],
        out=sys.stderr if number == spec.workers[0] and sys.stderr.isatty() else None,
        clock_ns=time.monotonic_ns,
    )
    if len(tried) >= len(trials.read(segment, number)):
        # One that takes the place of another tries less; what that has measured still holds.
        trials.write(segment, number, tried)


def _serve(
    segment: Segment,
    start: dict[str, Any],
    model: Model,
    padded: Padding | None,
    control: ControlSocket,
) -> None:
    number = start["number"]
    lanes = [segment.lane_doorbell(lane) for lane in range(segment.layout.lanes)]
    holder = Holder(segment, number, lambda lane: lanes[lane].wake())
    (spec,) = (spec for spec in segment.models if number in spec.workers)
    runner = _runner(model, padded, spec, holder, lambda batch: worker.runs_again(batch))
    if isinstance(runner, Runner) and start["warm_up"]:
        _warm_up(segment, spec, runner, start, start["warm_up"])
    collector = segment.collector_doorbell()
    doorbell = segment.worker_doorbell(number)
    worker = Worker(segment, number, runner, holder, collector.wake, time.monotonic_ns)
    stopping: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        stopping.append(signum)
        doorbell.wake()

    signal.signal(signal.SIGTERM, stop)
    process.watch(control, lambda _message: None, lambda: os._exit(1))
    settle()
    _say(segment, number, WorkerState.READY)
    worker.begin()
    control.send(ready=True)
    while not stopping:
        worker.step()
        doorbell.wait(RETRY_S if holder.delayed else None)


def _runner(
    model: Model,
    padded: Padding | None,
    spec: ModelSpec,
    holder: Holder,
    run_again: Callable[[int], object],
) -> Runner | Forwarder:
    if model.remote is not None:
        return Forwarder(model.remote, spec.name, holder, time.monotonic_ns, run_again)
    codec: Codec | None = None
    if padded is not None:
        codec = PaddedCodec(holder.memory, model, padded, finite=spec.refuse_nan)
    elif spec.refuse_nan and model.inputs:
        codec = FiniteCodec(holder.memory, model, spec.batched)
    return Runner(
        model,
        spec.name,
        holder,
        time.monotonic_ns,
        batched=spec.batched,
        sizes=spec.allowed_batch_sizes,
        codec=codec,
        run_again=run_again,
    )


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
