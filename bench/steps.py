"""What a request costs each role, in one process: its steps are called by hand, best of many.

Nothing sleeps, wakes or waits here, so scheduling, clock speed and neighbours do not count: the
best of many short runs repeats within 2 % on machines on which requests/s differ by 40 % from one
minute to the next. This tells small changes of the code apart, `speed.py` what they are worth.

Figures are nanoseconds for each request of a batch, V1, 16 numbers each way. With another Python,
its installation is measured by turns with this one's; its modules must have the same names.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from report import Report
from rounds import run_rounds, table

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.runtimes.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.engine_port import EnginePort
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.tensor import Tensor

SIZES = (1, 8, 32)
"""Requests in a batch."""
MAX_RATIO = 1.03
REPETITIONS = 300
_LANE_BYTES = 64 * PAGE
FAR_NS = 3_600_000_000_000
SPEC = ModelSpec(
    index=0,
    name="double",
    platform="python",
    inputs=(Tensor("x", "FP32", [16]),),
    outputs=(Tensor("y", "FP32", [16]),),
    max_batch_size=max(SIZES),
    max_latency_ns=0,
    timeout_ns=FAR_NS,
    policy="eager",
    workers=(0,),
)
BODY = json.dumps({"instances": [[number / 7 for number in range(16)]]}).encode()

Figures = Mapping[str, float]
"""Nanoseconds for a request, by what was done and in how large a batch."""


class Loop:
    """As much of an event loop as a frontend's gateway uses; its timers never fire."""

    def __init__(self) -> None:
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """As asyncio's."""
        self._soon.append((call, arguments))

    def call_later(self, _delay_s: float, _call: Callable[[], object]) -> "Timer":
        """As asyncio's."""
        return Timer()

    def turn(self) -> None:
        """Call what was to be called."""
        while self._soon:
            call, arguments = self._soon.popleft()
            call(*arguments)


class Timer:
    """One that never fires."""

    def cancel(self) -> None:
        """As asyncio's."""


class Engine:
    """A frontend, a collector and a worker on one segment, none of which runs by itself."""

    def __init__(self, size: int, traced: int = 0) -> None:
        layout = Layout(
            lanes=1,
            slots=64,
            lane_bytes=_LANE_BYTES,
            workers=1,
            models=1,
            model_table_bytes=PAGE,
            traced=traced,
        )
        spec = replace(SPEC, max_batch_size=size)
        segment = Segment.local(layout, (spec,))
        self.size = size
        self.answers: list[Any] = []
        self.loop = Loop()
        self.gateway = Gateway(Lane(segment, 0, _nobody), cast(Any, self.loop), time.monotonic_ns)
        self.collector = Collector(segment, _nobody, _nobody, end_worker=_nobody)
        self.collector.start(1)
        port = EnginePort(segment, 0, _nobody)
        model = Model(spec.inputs, spec.outputs, _nobody, lambda x: x * 2)
        runner = Runner(model, spec.name, port, time.monotonic_ns)
        self.worker = Worker(segment, 0, runner, port, _nobody, time.monotonic_ns)
        segment.words[layout.worker(0) + WorkerWords.MODEL] = spec.reference
        segment.words[layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
        self.worker.begin()
        self.collector.step(time.monotonic_ns())
        self.service = Service(segment, self.gateway, time.monotonic_ns)

    @property
    def steps(self) -> dict[str, Callable[[], None]]:
        """What a batch of requests goes through, in order."""
        return {
            "frontend, to send": self.send,
            "collector, to dispatch": self.collect,
            "worker, to run and answer": self.run,
            "collector, to take the report": self.collect,
            "frontend, to answer": self.answer,
        }

    def send(self) -> None:
        """The frontend reads a batch of requests, and publishes and submits them."""
        predict, answered = self.service.predict, self.answers.append
        for _ in range(self.size):
            predict("double", BODY, answered)
        self.loop.turn()

    def collect(self) -> None:
        """The collector looks for something to do."""
        self.collector.step(time.monotonic_ns())

    def run(self) -> None:
        """The worker runs the batch."""
        self.worker.step()

    def answer(self) -> None:
        """The frontend takes the answers and makes JSON of them."""
        self.gateway.collect()
        self.loop.turn()

    def check(self) -> None:
        """Expect that every request was answered, and forget the answers."""
        assert [status for status, *_ in self.answers] == [200] * self.size, self.answers
        self.answers.clear()

    def batch(self) -> dict[str, int]:
        """Serve one batch of requests; what each role's steps took, in nanoseconds."""
        clock, took_ns = time.perf_counter_ns, {}
        for what, step in self.steps.items():
            began_ns = clock()
            step()
            took_ns[what] = clock() - began_ns
        self.check()
        return took_ns


def _nobody(*_: object) -> None:
    """Takes the place of whoever would be woken."""


def figures(repetitions: int) -> Figures:
    """Those of the installation that runs this: the best of so many."""
    best: dict[str, float] = {}
    for size in SIZES:
        engine = Engine(size)
        for _ in range(repetitions):
            for what, took_ns in engine.batch().items():
                name = f"{what}, batch of {size}"
                best[name] = min(best.get(name, math.inf), took_ns / size)
        whole = sum(ns for name, ns in best.items() if name.endswith(f" batch of {size}"))
        best[f"all, batch of {size}"] = whole
    return best


def figures_of(python: str, repetitions: int) -> Figures:
    """Those of the installation of an interpreter."""
    command = [python, str(Path(__file__)), "--own", "--repetitions", str(repetitions)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: Figures = json.loads(told.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure, or compare; the exit status is 1 where this installation is slower than another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", help="the Python of an earlier installation")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of each batch")
    parser.add_argument("--own", action="store_true", help="one round, as JSON")
    options = parser.parse_args()
    if options.own:
        print(json.dumps(figures(options.repetitions)))
        return 0
    report = Report("steps", vars(options))
    pythons = {"before": options.before} if options.before else {}
    pythons["after"] = sys.executable

    def run(turn: int, name: str) -> Figures:
        found = figures_of(pythons[name], options.repetitions)
        report.run(round=turn, entry=name, result=dict(found))
        return found

    runs = run_rounds(list(pythons), options.rounds, run)
    best = {
        name: {what: min(found[what] for found in rounds) for what in rounds[0]}
        for name, rounds in runs.items()
    }
    names = list(best["after"])
    columns = [[f"{best[name][what]:,.0f}" for what in names] for name in best]
    if options.before:
        quotients = {what: best["after"][what] / best["before"][what] for what in names}
        columns.append([f"{quotients[what]:.3f}" for what in names])
    head = ["ns for a request", *best, *["after / before"] * bool(options.before)]
    report.say(table(head, [list(line) for line in zip(names, *columns, strict=True)]))
    if options.before:
        for size in SIZES:
            what = f"all, batch of {size}"
            report.limit(f"{what}, after / before", quotients[what], at_most=MAX_RATIO)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
