"""A collector, workers of a model in steps and their clients: all real ones, stepped by hand."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from segment_fixture import Client, Reply, local_segment, spec

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.models.model import Model, StepFunctions
from ringbatch.engine.worker.join_limits import JoinLimits
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.steps_runner import StepsRunner
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import SLOT_MASK, Status

TICK_NS = 1_000


@dataclass(eq=False)
class Row:
    """State of a row of `Countdown`."""

    start: int
    left: int


@dataclass
class Countdown:
    """A model in steps: a row of n counts from 0 to n - 1, and then it ends.

    Attributes:
        ended: the start and the reason of each row that has left, in order.
        steps: the rows' starts of each step; None for a state that is None.
        fails_for: starts for which a step raises.
        refuses: starts for which begin raises.
        done: starts for which begin returns None.
        is_short: whether a step says nothing of its first row.
        costs: what a row costs by its start, if not its start; an exception is raised.
    """

    ended: list[tuple[int, str]] = field(default_factory=list)
    begun: list[list[int]] = field(default_factory=list)
    steps: list[list[int | None]] = field(default_factory=list)
    fails_for: set[int] = field(default_factory=set)
    refuses: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    is_short: bool = False
    costs: dict[int, Any] = field(default_factory=dict)
    on_step: Callable[[], object] = lambda: None

    def begin(self, instances: Sequence[int]) -> list[Row]:
        self.begun.append([*instances])
        if wrong := self.refuses.intersection(instances):
            raise ValueError(f"begin refuses {wrong}")
        rows = [Row(instance, instance) for instance in instances]
        return [None if row.start in self.done else row for row in rows]  # type: ignore[misc]

    def step(self, states: list[Row]) -> tuple[list[int], list[bool]]:
        self.steps.append([row.start if row else None for row in states])
        self.on_step()
        if wrong := self.fails_for.intersection(row.start for row in states):
            raise ValueError(f"step fails for {wrong}")
        parts = [row.start - row.left for row in states]
        for row in states:
            row.left -= 1
        ended = [row.left <= 0 for row in states]
        return (parts[1:], ended[1:]) if self.is_short else (parts, ended)

    def cost(self, instance: int) -> Any:
        cost = self.costs.get(instance, instance)
        if isinstance(cost, Exception):
            raise cost
        return cost

    def end(self, state: Row, reason: str) -> None:
        self.ended.append((state.start, reason))

    def opened(self, entry: ModelSpec, *, repeatable: bool = False) -> Model:
        functions = StepFunctions(self.begin, self.step, self.end, repeatable, entry.resumes)
        return Model((), (), lambda: None, self.begin, in_parts=True, steps=functions)


@dataclass
class NumberedCountdown(Countdown):
    """Countdown without states: it keeps its rows by the numbers of their places.

    Attributes:
        rows: by number, those that have begun and not ended.
        numbers: of each step.
        given: of each call of begin.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    numbers: list[list[int]] = field(default_factory=list)
    given: list[list[int]] = field(default_factory=list)

    def begin_rows(self, instances: Sequence[int], rows: Any) -> list[bool] | None:
        assert rows.dtype == np.int64
        numbers = rows.tolist()
        self.given.append(numbers)
        assert len({*numbers}) == len(numbers) == len(instances)
        assert self.rows.keys().isdisjoint(numbers), "a number is given to two rows"
        states = self.begin(instances)
        self.rows |= {n: state for n, state in zip(numbers, states, strict=True) if state}
        return [state is None for state in states] if self.done else None

    def step_rows(self, rows: Any) -> tuple[list[int], list[bool]]:
        assert rows.dtype == np.int64
        self.numbers.append(rows.tolist())
        return self.step([self.rows[number] for number in rows.tolist()])

    def end_row(self, row: int, reason: str) -> None:
        self.end(self.rows.pop(row), reason)

    def opened(self, entry: ModelSpec, *, repeatable: bool = False) -> Model:
        functions = StepFunctions(
            self.begin_rows, self.step_rows, self.end_row, repeatable, entry.resumes, entry.places
        )
        return Model((), (), lambda: None, self.begin, in_parts=True, steps=functions)


def in_steps(
    places: int = 4,
    workers: tuple[int, ...] = (0,),
    resumes: tuple[tuple[str, str], ...] = (),
    **more: Any,
) -> ModelSpec:
    """Return the entry of a model in steps."""
    entry = spec(max_batch_size=1, workers=workers, **more)
    return replace(entry, places=places, in_parts=True, resumes=resumes)


class StepsHarness:
    """An engine of one model in steps, one client lane, and a clock.

    Attributes:
        rings: how often workers have rung for the collector.
    """

    def __init__(
        self,
        entry: ModelSpec | None = None,
        *,
        repeatable: bool = False,
        make: type[Countdown] = Countdown,
        most_cost: float = 0,
        most_joining: int = 0,
        **countdown: Any,
    ) -> None:
        self.entry = entry or in_steps()
        self.repeatable = repeatable
        self.most_cost = most_cost
        self.most_joining = most_joining
        self.segment = local_segment(self.entry)
        self.client = Client(self.segment)
        self.now_ns = 1_000
        self.ended: list[int] = []
        self.models = {number: make(**countdown) for number in self.entry.workers}
        self.workers: dict[int, StepsWorker] = {}
        self.rings = 0
        self.replies: dict[int, Reply] = {}
        self.seen: dict[int, list[Any]] = {}
        self.collector = self.new_collector()
        for number in self.entry.workers:
            self.start_worker(number)

    @property
    def model(self) -> Countdown:
        """The model of the first worker."""
        return self.models[self.entry.workers[0]]

    def new_collector(self) -> Collector:
        """Begin a collector in the place of the one that there was."""
        self.collector = Collector(
            self.segment, lambda _lane: None, lambda _worker: None, end_worker=self.ended.append
        )
        self.collector.start(self._tick())
        return self.collector

    def start_worker(self, number: int) -> StepsWorker:
        """Begin a process of a worker's number."""
        slots = EngineSlots(self.segment, number, lambda _lane: None)
        cost = self.models[number].cost if self.most_cost else None
        runner = StepsRunner(
            RunnerSetup(
                self.models[number].opened(self.entry, repeatable=self.repeatable),
                "m",
                slots,
                self._tick,
                run_again=lambda batch: self.workers[number].runs_again(batch),
            ),
            pause=lambda _seconds: None,
            limits=JoinLimits(cost, most_cost=self.most_cost, most_joining=self.most_joining),
        )
        worker = StepsWorker(self.segment, number, runner, slots, self._ring, self._tick)
        first = self.segment.layout.worker(number)
        self.segment.words[first + WorkerWords.MODEL] = self.entry.reference
        self.segment.words[first + WorkerWords.STATE] = WorkerState.READY
        worker.begin()
        self.workers[number] = worker
        self.collect()
        return worker

    def _ring(self) -> None:
        self.rings += 1

    def kill(self, number: int, *, killed: bool = False) -> bool:
        """End a worker's process, and tell the collector."""
        del self.workers[number]
        self.segment.worker_ended(number)
        return self.collector.worker_died(number, self._tick(), killed=killed)

    def send(self, count: int, *, in_parts: bool = True, **more: Any) -> int:
        """Publish a request for so many parts, and return its slot."""
        slot = self.client.send(f"[{count}]".encode(), in_parts=in_parts, **more)
        self.replies.pop(slot, None)
        self.seen[slot] = []
        return slot

    def cancel(self, slot: int) -> None:
        """Cancel a request of the client."""
        self.client.lane.cancel(slot)
        self.client.lane.submit()
        del self.seen[slot]

    def collect(self) -> None:
        """Step the collector, and read what has come."""
        self.collector.step(self._tick())
        self.read()

    def read(self) -> None:
        """Read parts and replies."""
        for slot, parts in self.seen.items():
            if slot not in self.replies:
                parts += [json.loads(part)[0] for part in self.client.parts(slot)]
        for slot, reply in self.client.collect().items():
            self.replies[slot] = reply

    def step(self, times: int = 1) -> None:
        """Step the collector and then each worker, so many times."""
        for _ in range(times):
            self.collect()
            for worker in [*self.workers.values()]:
                worker.step()
            self.read()

    def finish(self) -> None:
        """Step until every request is answered."""
        for _ in range(1_000):
            if self.seen.keys() <= self.replies.keys():
                self.collect()
                return
            self.step()
        raise AssertionError(f"not answered: {self.seen.keys() - self.replies.keys()}")

    def status(self, slot: int) -> Status:
        return self.replies[slot].answer.status

    def live(self, number: int = 0) -> int:
        """Return how many rows of a worker are live."""
        return self.workers[number]._stepped.live

    def starts(self, number: int = 0) -> list[int]:
        """Return the starts of the live rows of a worker."""
        return [row.state.start for row in self.workers[number]._stepped._rows.values()]

    def _tick(self) -> int:
        self.now_ns += TICK_NS
        return self.now_ns


def slot_number(ref: int) -> int:
    """Return the slot of a reference."""
    return ref & SLOT_MASK
