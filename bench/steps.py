"""Cost of a request in each role, in one process: its steps are called by hand, best of many.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, cast

from host.children import tied
from report.record import Report
from report.rounds import run_rounds, table

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.ipc.messages import ReportKind, read_tasks, report_words, task_size
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.worker import Worker
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.account import IDENTITY_MASK
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS, WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_counters import Spent
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

SIZES = (1, 8, 32)
"""Requests in a batch."""
MAX_RATIO = 1.03
MANY = 1_000
"""Number of served models without work, or of waiting signatures."""
MAX_MANY_RATIO = 1.3
ACCOUNTS = 100_000
"""Number of accounts that ask one after the other."""
WAITING = 480
"""Requests that wait while accounts ask."""
LONE = "collector, a lone request"
WAITS = "collector, to have a request wait"
NEXT = "collector, to dispatch the next"
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
    """Event loop with the methods that a frontend's gateway uses; its timers never fire."""

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
    """Timer that never fires."""

    def cancel(self) -> None:
        """As asyncio's."""


class Engine:
    """Frontend, collector and worker on one segment, which run only step by step.

    Args:
        size: requests in a batch.
        traced: places for traced requests.
        models: the number of served models. Requests go to the first; of the others, every second
            has a worker.
    """

    def __init__(self, size: int, traced: int = 0, models: int = 1) -> None:
        spec = replace(SPEC, max_batch_size=size)
        others = [
            replace(SPEC, index=n, account=n, name=f"other {n}", workers=(n,) * (n % 2))
            for n in range(1, models)
        ]
        layout = Layout(
            lanes=1,
            slots=64,
            lane_bytes=_LANE_BYTES,
            workers=models,
            models=models,
            model_table_bytes=models * PAGE,
            traced=traced,
        )
        segment = Segment.local(layout, (spec, *others))
        self.size = size
        self.answers: list[Any] = []
        self.loop = Loop()
        self.gateway = Gateway(Lane(segment, 0, _nobody), cast(Any, self.loop), time.monotonic_ns)
        self.collector = Collector(segment, _nobody, _nobody, end_worker=_nobody)
        self.collector.start(1)
        engine_slots = EngineSlots(segment, 0, _nobody)
        model = Model(spec.inputs, spec.outputs, _nobody, lambda x: x * 2)
        runner = Runner(RunnerSetup(model, spec.name, engine_slots, time.monotonic_ns))
        self.worker = Worker(segment, 0, runner, engine_slots, _nobody, time.monotonic_ns)
        segment.words[layout.worker(0) + WorkerWords.MODEL] = spec.reference
        segment.words[layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
        self.worker.begin()
        for other in others:
            for number in other.workers:
                _report_ready(segment, number)
        self.collector.step(time.monotonic_ns())
        self.service = Service(segment, self.gateway, time.monotonic_ns)

    @property
    def steps(self) -> dict[str, Callable[[], None]]:
        """Return the steps that a batch of requests goes through, in order."""
        return {
            "frontend, to send": self.send,
            "collector, to dispatch": self.collect,
            "worker, to run and answer": self.run,
            "collector, to take the report": self.collect,
            "frontend, to answer": self.answer,
        }

    def send(self) -> None:
        """Read a batch of requests, publish and submit them, as a frontend."""
        predict, answered = self.service.predict, self.answers.append
        for _ in range(self.size):
            predict("double", BODY, answered)
        self.loop.turn()

    def collect(self) -> None:
        """Look for work as the collector."""
        self.collector.step(time.monotonic_ns())

    def collect_and_sleep(self) -> None:
        """Run a step of the collector, and its preparation for sleep."""
        self.collector.step(time.monotonic_ns())
        self.collector.prepare_to_sleep()

    def run(self) -> None:
        """Run the batch as the worker."""
        self.worker.step()

    def answer(self) -> None:
        """Take the answers and make JSON of them, as a frontend."""
        self.gateway.collect()
        self.loop.turn()

    def check(self) -> None:
        """Expect that every request was answered, and forget the answers."""
        assert [status for status, *_ in self.answers] == [200] * self.size, self.answers
        self.answers.clear()

    def batch(self) -> dict[str, int]:
        """Serve one batch of requests; what each role's steps took, in nanoseconds."""
        clock, took_ns = time.perf_counter_ns, {}
        for piece, step in self.steps.items():
            began_ns = clock()
            step()
            took_ns[piece] = clock() - began_ns
        self.check()
        return took_ns


class Crowd:
    """Collector whose only worker is busy while requests of many signatures or accounts wait.

    Args:
        signatures: their number; requests have them in turn.
        accounts: their number; requests have them in turn.
        size: requests in a batch.
        waiting: requests that wait; by default one of each signature.
    """

    def __init__(
        self, signatures: int, accounts: int = 1, size: int = 1, waiting: int | None = None
    ) -> None:
        waiting = waiting or signatures
        slots = 1 << (2 * (waiting + size)).bit_length()
        layout = Layout(
            lanes=1,
            slots=slots,
            lane_bytes=slots * PAGE,
            workers=1,
            models=1,
            model_table_bytes=PAGE,
        )
        shapes = Tensor("x", "FP32", [-1])
        spec = replace(SPEC, inputs=(shapes,), outputs=(shapes,), max_batch_size=size)
        self._segment = Segment.local(layout, (spec,))
        self._lane = Lane(self._segment, 0, _nobody)
        self._engine_slots = EngineSlots(self._segment, 0, _nobody)
        self._signatures, self._accounts = signatures, accounts
        self._size = size
        self._next = 0
        self.collector = Collector(self._segment, _nobody, _nobody, end_worker=_nobody)
        self.collector.start(1)
        self._tasks = Consumer(self._segment.words, layout.task_ring(0), TASK_WORDS)
        self._report = _report_ready(self._segment, 0)
        for _ in range(waiting // size + 1):
            self.send()
            self.collect()

    def send(self) -> None:
        """Submit a batch of requests, of the next signatures and accounts in turn."""
        lane, now_ns = self._lane, time.monotonic_ns()
        for number in range(self._next, self._next + self._size):
            length = 1 + number % self._signatures
            # Words of accounts are hashes: none is a small integer, of which Python has one object.
            account = IDENTITY_MASK - number % self._accounts
            payload = length.to_bytes(16, "little")
            fields = (payload, 16, SPEC.reference, 1, now_ns, FAR_NS * 1_000, 8, account)
            slot = lane.send(*fields)
            assert slot is not None, "there are slots for all that wait"
        self._next += self._size
        lane.submit()

    def collect(self) -> None:
        """Run a step of the collector, and its preparation for sleep."""
        self.collector.step(time.monotonic_ns())
        self.collector.prepare_to_sleep()

    def run(self) -> None:
        """Answer the worker's batch, and report it done."""
        task = read_tasks(self._tasks.peek())[0]
        for ref in task.references:
            self._engine_slots.answer(ref, Status.OK, 0, task.mark, 0)
        self._engine_slots.flush()
        self._tasks.release(task_size(task.references))
        for slot in self._lane.collect():
            self._lane.release(slot)
        spent = Spent(1, 1, 1, 0, 0)
        self._report.offer(report_words(ReportKind.DONE, task.mark.batch, task.mark.rows, spent))


def _report_ready(segment: Segment, number: int) -> Producer:
    """Report a worker as ready, and return the ring of its reports."""
    ring = Producer(segment.words, segment.layout.report_ring(number), REPORT_WORDS)
    ring.offer(report_words(ReportKind.READY, 0, 0, Spent(0, 0, 0, 0, 0)))
    return ring


def _nobody(*_: object) -> None:
    """Do nothing, in place of a doorbell."""


def figures(repetitions: int) -> Figures:
    """Return the figures of the installation that runs this program: the best of so many runs."""
    best: dict[str, float] = {}
    for size in SIZES:
        engine = Engine(size)
        for _ in range(repetitions):
            for piece, took_ns in engine.batch().items():
                name = f"{piece}, batch of {size}"
                best[name] = min(best.get(name, math.inf), took_ns / size)
        whole = sum(ns for name, ns in best.items() if name.endswith(f" batch of {size}"))
        best[f"all, batch of {size}"] = whole
    for many in (1, MANY):
        best |= beside_models(many, repetitions) | beside_signatures(many, repetitions)
    return best


def beside_models(models: int, repetitions: int) -> dict[str, float]:
    """Time the collector's steps for a lone request, with a number of served models."""
    engine, best = Engine(1, models=models), math.inf
    for _ in range(repetitions):
        engine.send()
        took_ns = _took_ns(engine.collect_and_sleep)
        engine.run()
        took_ns += _took_ns(engine.collect_and_sleep)
        engine.answer()
        engine.check()
        best = min(best, took_ns)
    return {f"{LONE}, {models:,} models": best}


def beside_signatures(signatures: int, repetitions: int) -> dict[str, float]:
    """Time the collector's steps, with a number of signatures waiting behind a busy worker."""
    crowd, to_wait, to_dispatch = Crowd(signatures), math.inf, math.inf
    for _ in range(repetitions):
        crowd.send()
        to_wait = min(to_wait, _took_ns(crowd.collect))
        crowd.run()
        to_dispatch = min(to_dispatch, _took_ns(crowd.collect))
    return {
        f"{WAITS}, {signatures:,} signatures": to_wait,
        f"{NEXT}, {signatures:,} signatures": to_dispatch,
    }


def beside_accounts(
    accounts: Sequence[int], rounds: int, waiting: int = 0
) -> dict[int, list[float]]:
    """Time the collector's steps for a request of a full batch, by the number of accounts.

    Each collector serves the accounts in turn, so that each of very many comes once. All of them
    serve some batches by turns.

    Args:
        accounts: their numbers.
        rounds: number of rounds; the requests of one collector are `ACCOUNTS` in all of them.
        waiting: requests that wait before each batch comes; without any, each batch takes all.

    Returns:
        By number of accounts, the median nanoseconds of each round.
    """
    size = max(SIZES)
    crowds = {many: Crowd(1, many, size, waiting) for many in accounts}

    def run(_turn: int, many: int) -> float:
        crowd, took_ns = crowds[many], []
        for _ in range(ACCOUNTS // size // rounds):
            crowd.send()
            took = _took_ns(crowd.collect)
            crowd.run()
            took_ns.append((took + _took_ns(crowd.collect)) / size)
        return median(took_ns)

    return run_rounds(accounts, rounds, run)


def _took_ns(call: Callable[[], object]) -> int:
    began_ns = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began_ns


def figures_of(python: str, repetitions: int) -> Figures:
    """Return the figures of the installation of an interpreter."""
    command = [python, str(Path(__file__)), "--own", "--repetitions", str(repetitions)]
    completed = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, preexec_fn=tied()
    )
    found: Figures = json.loads(completed.stdout.splitlines()[-1])
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
        name: {piece: min(found[piece] for found in rounds) for piece in rounds[0]}
        for name, rounds in runs.items()
    }
    names = list(best["after"])
    columns = [[f"{best[name][piece]:,.0f}" for piece in names] for name in best]
    if options.before:
        quotients = {piece: best["after"][piece] / best["before"][piece] for piece in names}
        columns.append([f"{quotients[piece]:.3f}" for piece in names])
    head = ["ns for a request", *best, *["after / before"] * bool(options.before)]
    report.print_text(table(head, [list(line) for line in zip(names, *columns, strict=True)]))
    after = best["after"]
    for piece, unit in ((LONE, "models"), (WAITS, "signatures"), (NEXT, "signatures")):
        ratio = after[f"{piece}, {MANY:,} {unit}"] / after[f"{piece}, 1 {unit}"]
        report.limit(f"{piece}, {MANY:,} {unit} / 1", ratio, at_most=MAX_MANY_RATIO)
    if options.before:
        for size in SIZES:
            piece = f"all, batch of {size}"
            report.limit(f"{piece}, after / before", quotients[piece], at_most=MAX_RATIO)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
