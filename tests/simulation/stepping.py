"""A model in steps in a life: it knows each state that it has begun, and complains of wrong use."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from simulation.machine import Process
from simulation.served import ROWS_AT_MOST, number_in, part_of_json, part_of_numbers, parts_of

from ringbatch.engine.models.model import Model, StepFunctions
from ringbatch.engine.worker.join_limits import JoinLimits
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.steps_runner import LiveRow, StepsRunner
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason

BEGINS: Final = -1
"""Mark of a row's begin in the place of a part."""
MOST_PLACES: Final = 4
"""Places that any worker is ever allowed."""
_MOST_COST: Final = 4
"""Most that a row costs."""


@dataclass(frozen=True)
class Kind:
    """Kind of the models in steps of one life.

    Attributes:
        repeatable: whether a step that raises leaves all states as they were.
        numbered: whether it is given the numbers of its rows' places.
        most_cost: of the live rows of a worker; 0 for no limit.
        most_joining: rows that begin between two steps; 0 for no limit.
        pieces: whether rows take steps before their first part, where parts are joined.
    """

    repeatable: bool = False
    numbered: bool = False
    most_cost: int = 0
    most_joining: int = 0
    pieces: bool = False

    @classmethod
    def of(cls, steps: random.Random, costs: random.Random, *, limited: bool) -> "Kind":
        """Return one of them.

        Args:
            steps: decides whether steps can be repeated.
            costs: decides all else.
            limited: whether there is a limit of costs.
        """
        return cls(
            steps.random() < 0.5,
            costs.random() < 0.5,
            costs.choice([_MOST_COST, _MOST_COST + 2]) * limited,
            costs.choice([0, 1, 2]) * limited,
            costs.random() < 0.5,
        )


def cost_of(number: int) -> int:
    """Return what a row of a request of that number costs."""
    return 1 + number % _MOST_COST


@dataclass(eq=False)
class State:
    """State of a row.

    Attributes:
        number: of its request.
        row: number of the row in its request.
        value: number that it came with, for a model of numbers.
        silent: steps that it takes before its first part.
        part: the number of its next part.
        steps: number of its steps, also those that raised.
        spoilt: whether a step has raised that leaves its states in any way.
        ended: whether it has been ended.
    """

    number: int
    row: int
    value: int = 0
    silent: int = 0
    part: int = 0
    steps: int = 0
    spoilt: bool = False
    ended: bool = False


class Stepping:
    """The model of one process of a worker.

    Args:
        process: the worker's.
        typed: whether it takes and returns numbers.
        kind: of the model.
        look_at: does what the kinds of requests say, given the part of each.
        padding: of each part of a request.
        known: returns whether a request is an honest client's.
        others: the models of all workers.
        places: the most rows that any worker has been allowed.
        begins: most begins of a row here.
        complain: is given a text where something does not hold.

    Attributes:
        process: see above.
        runner: uses it, once `runner_of` has made it.
        states: states that have begun and not ended.
    """

    runner: StepsRunner

    def __init__(
        self,
        process: Process,
        look_at: Callable[[dict[int, int]], object],
        padding: Callable[[int], str],
        known: Callable[[int], bool],
        others: Callable[[], Iterable["Stepping"]],
        places: Callable[[], int],
        begins: Callable[[], int],
        complain: Callable[[str], object],
        *,
        typed: bool,
        kind: Kind,
    ) -> None:
        self.process = process
        self._kind = kind
        self._by_number: dict[int, State] = {}
        """States of a model that is given numbers."""
        self.states: list[State] = []
        self._typed = typed
        self._look_at = look_at
        self._padding = padding
        self._known = known
        self._others = others
        self._places = places
        self._begins = begins
        self._begun: Counter[tuple[int, int]] = Counter()
        self._complain = complain

    def begin(self, rows: Any) -> list[State]:
        """Begin rows."""
        if self._typed:
            begun = [State(number_in(v), v % ROWS_AT_MOST, v) for v in rows.tolist()]
        else:
            pieces = self._kind.pieces
            begun = [State(r["n"], r["row"], silent=r["n"] // 10 % 3 * pieces) for r in rows]
        self._look_at({state.number: BEGINS for state in begun})
        alive = [other for other in self._others() if other.process.alive]
        live = {(s.number, s.row) for other in alive for s in other.states}
        for state in begun:
            if self._known(state.number) and (state.number, state.row) in live:
                self._complain(f"row {state.row} of request {state.number} runs twice at a time")
        self._begun.update((state.number, state.row) for state in begun)
        strangers = sum(not self._known(number) for number, _ in self._begun.elements())
        for (number, row), count in self._begun.items():
            if self._known(number) and count > self._begins() + strangers:
                self._complain(f"row {row} of request {number} begins {count} times")
        self.states += begun
        count = sum(self._known(state.number) for state in self.states)
        if count > self._places():
            self._complain(f"{count} rows are live, and there are {self._places()} places")
        self._expect_limits(begun)
        return begun

    def _expect_limits(self, begun: Sequence[State]) -> None:
        most_cost, most_joining = self._kind.most_cost, self._kind.most_joining
        cost = sum(cost_of(state.number) for state in self.states if self._known(state.number))
        if most_cost and cost > most_cost:
            self._complain(f"live rows cost {cost}, and may cost {most_cost}")
        if most_joining and len(begun) > most_joining:
            self._complain(f"{len(begun)} rows begin at once, and {most_joining} may")

    def cost(self, row: Any) -> int:
        """Return what a row costs."""
        return cost_of(number_in(int(row)) if self._typed else row["n"])

    def state_of(self, row: LiveRow) -> State:
        """Return the state of a live row."""
        state: State = self._by_number[row.state] if self._kind.numbered else row.state
        return state

    def _begin_numbers(self, instances: Any, rows: Any) -> None:
        numbers = rows.tolist()
        taken = [n for n in numbers if n in self._by_number or not 0 <= n < MOST_PLACES]
        if taken or len({*numbers}) < len(numbers):
            self._complain(f"rows begin with the numbers {numbers}, which are not all free")
        self._by_number |= zip(numbers, self.begin(instances), strict=True)

    def _step_numbers(self, rows: Any) -> tuple[Any, list[bool]]:
        return self.step([self._by_number[number] for number in rows.tolist()])

    def _end_number(self, row: int, reason: str) -> None:
        self.end(self._by_number.pop(row), reason)

    def _functions(self) -> StepFunctions:
        repeatable = self._kind.repeatable
        if self._kind.numbered:
            return StepFunctions(
                self._begin_numbers,
                self._step_numbers,
                self._end_number,
                repeatable,
                places=MOST_PLACES,
            )
        return StepFunctions(self.begin, self.step, self.end, repeatable)

    def step(self, states: Sequence[State]) -> tuple[Any, list[bool]]:
        """Run one step."""
        if len({*states} & {*self.states}) < len(states):
            self._complain("a step is given states that have ended, or one twice")
        if any(state.spoilt for state in states):
            self._complain("a step is given a state that another may have spoilt")
        self._expect_nothing_beside_retries()
        for state in states:
            state.steps += 1
        try:
            self._look_at({s.number: s.part for s in sorted(states, key=lambda s: -s.part)})
        except BaseException:
            for state in states:
                state.spoilt = not self._kind.repeatable
            raise
        outputs = [[] if state.silent else self._part(state) for state in states]
        for state in states:
            state.part += not state.silent
            state.silent = max(state.silent - 1, 0)
        ended = [state.part >= parts_of(state.number) for state in states]
        return np.concatenate(outputs) if self._typed else outputs, ended

    def end(self, state: State, reason: str) -> None:
        """End a state."""
        if state.ended:
            self._complain(f"a state of request {state.number} is ended twice")
        if reason == "done" and state.part != parts_of(state.number):
            self._complain(f"a row of request {state.number} is done after {state.part} parts")
        state.ended = True
        self.states.remove(state)

    def runner_of(
        self,
        model: ModelSpec,
        slots: EngineSlots,
        clock_ns: Callable[[], int],
        pause: Callable[[float], object],
        run_again: Callable[[int], object],
    ) -> StepsRunner:
        """Return the runner that uses it."""
        loaded = Model(
            model.inputs,
            model.outputs,
            lambda: None,
            self.begin,
            in_parts=True,
            steps=self._functions(),
        )
        codec = TensorCodec(slots.memory, loaded) if model.typed else None
        most_cost, most_joining = self._kind.most_cost, self._kind.most_joining
        cost = self.cost if most_cost else None
        self.runner = StepsRunner(
            RunnerSetup(loaded, model.name, slots, clock_ns, codec=codec, run_again=run_again),
            pause=pause,
            limits=JoinLimits(cost, most_cost=most_cost, most_joining=most_joining),
        )
        return self.runner

    def go_on(self, worker: StepsWorker) -> None:
        """Let the worker take a step, and check it.

        Raises:
            AssertionError: it steps without a row that could have gone on, or with one of which
                nobody waits for the rest; or a row begins before one that has waited longer.
        """
        rows, joining = self.runner._rows, self.runner._joining
        gone = {*self.runner._slots.given_up([*rows, *joining], self.runner._clock_ns())}
        free = [r for r in rows.values() if r.stream is None or not r.stream.waits]
        before = {self.state_of(row): self.state_of(row).steps for row in free}
        worker.step()
        last = max([row.batch.mark.batch for row in rows.values()], default=0)
        for row in joining.values():
            assert row.batch.mark.batch >= last, f"batch {last} has begun before {row.batch.mark}"
        assert gone.isdisjoint(joining), f"rows wait that nobody waits for: {gone & joining.keys()}"
        assert gone.isdisjoint(rows), f"rows go on that nobody waits for: {gone & rows.keys()}"
        for row in rows.values():
            state = self.state_of(row)
            assert before.get(state) != state.steps, (
                f"a row of request {state.number} stands still without need"
            )

    def _part(self, state: State) -> Any:
        if self._typed:
            return part_of_numbers(np.array([state.value]), state.part)
        return part_of_json(state.number, state.row, state.part, self._padding(state.number))

    def _expect_nothing_beside_retries(self) -> None:
        rows = self.runner._rows.values()
        honest = [row for row in rows if self._known(self.state_of(row).number)]
        marks = {row.batch.mark.batch: row.batch.mark for row in honest}
        if len(marks) > 1 and any(mark.reason is Reason.RETRY for mark in marks.values()):
            self._complain("rows have joined others that run again")
