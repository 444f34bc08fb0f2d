"""Models of a life's engine: they do what the kinds of their batches' requests say."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from simulation.asked import FATAL, HANGING, LARGE, POISON, REFUSED, Asked, padding
from simulation.engine import Engine
from simulation.machine import Machine
from simulation.parted import padding_of
from simulation.profiles import Profile
from simulation.served import (
    ADDED,
    COUNTING,
    GATHERING,
    PARTS,
    SPREADING,
    STRIDING,
    YIELDING,
    gathered,
    is_numeric,
    marked,
    names_in,
    number_in,
    part_of_json,
    part_of_numbers,
    spread,
    steps_of,
)
from simulation.stepping import Kind, Stepping

from ringbatch.engine.collector.dead_batches import MAX_DEATHS
from ringbatch.engine.models.model import InvalidInput

_VICTIMS_AT_MOST: Final = 12
"""Most deaths of workers by one request, with the batches that isolate it and other misfortunes."""
_BEGINS_AT_MOST: Final = 3
"""Most begins of a row, if no step fails."""


class Models:
    """The models of one life.

    Args:
        machine: runs their workers.
        chance: decides how long they take.
        profile: of the life.
        asked: the requests so far.

    Attributes:
        engine: theirs; set once it is made.
        violation: a text if a request has taken more workers than it may, or if a model in steps
            is used as it may not be.
        kind: of a model in steps.
    """

    engine: Engine

    def __init__(
        self, machine: Machine, chance: random.Random, profile: Profile, asked: Sequence[Asked]
    ) -> None:
        self._machine = machine
        self._chance = chance
        self._profile = profile
        self._asked = asked
        self.violation = ""
        self.kind = Kind()
        self._runs = count(1)

    def stepping(self, name: str) -> Stepping:
        """Return the model in steps of that name, for the process that runs."""
        process = self._machine.current
        assert process is not None
        return Stepping(
            process,
            self._look_at,
            self._padding,
            lambda number: self._known(number) is not None,
            lambda: self.engine.stepping.values(),
            lambda: self.engine.most_places,
            self._most_begins,
            self._complain,
            typed=name == STRIDING.name,
            kind=self.kind,
        )

    def predict(self, name: str) -> Callable[..., Any]:
        """Return the function of the model of that name."""
        if name == SPREADING.name:
            return self._predict_spreading
        if name == GATHERING.name:
            return lambda wide, x: self._predict_numbers(name, gathered(wide, x))
        if name == YIELDING.name:
            return self._yield_json
        if name == COUNTING.name:
            return self._yield_numbers
        if any(model.name == name and is_numeric(model) for model in self.engine.specs):
            return lambda x: self._predict_numbers(name, x)
        return self._predict_untyped

    def _predict_spreading(self, x: Any) -> Any:
        large = any(number_in(int(value)) % 10 == LARGE for value in x)
        return spread(self._predict_numbers(SPREADING.name, x), large=large)

    def _predict_numbers(self, name: str, values: Any) -> Any:
        stages = {}
        for value in values.tolist():
            number, passed = number_in(value), names_in(value)
            stages[number] = len(passed)
            asked = self._known(number)
            if asked is not None:
                if steps_of(asked.model)[: len(passed) + 1] != (*passed, name):
                    # If another request has its slot by now, no client learns of this.
                    raise ValueError(f"request {number} comes to {name} from {passed}")
                asked.runs[len(passed)] += 1
        self._look_at(stages)
        return marked(values, name)

    def _predict_untyped(self, objects: Any) -> Any:
        numbers = [instance["n"] for instance in objects]
        self._look_at(dict.fromkeys(numbers, 0))
        return [{"n": n, "added": ADDED, "pad": padding(n)} for n in numbers]

    def _yield_json(self, objects: Any) -> Iterator[Any]:
        rows = [(instance["n"], instance["row"]) for instance in objects]
        pads = {number: self._padding(number) for number, _ in rows}
        for part in range(PARTS):
            self._look_at(dict.fromkeys(pads, part))
            yield [part_of_json(number, row, part, pads[number]) for number, row in rows]

    def _yield_numbers(self, x: Any) -> Iterator[Any]:
        numbers = [number_in(value) for value in x.tolist()]
        for part in range(PARTS):
            self._look_at(dict.fromkeys(numbers, part))
            yield part_of_numbers(x, part)

    def _most_begins(self) -> int:
        """Return how often a row may begin: again for each that fails, and for lack of room."""
        failing = [asked.rows for asked in self._asked if asked.kind in (REFUSED, POISON)]
        return _BEGINS_AT_MOST + sum(failing)

    def _padding(self, number: int) -> str:
        """Return what each part of a request carries along."""
        asked = self._known(number)
        return "" if asked is None else padding_of(asked)

    def _complain(self, text: str) -> None:
        # An assertion here would be the model's, which may raise what it likes.
        self.violation = self.violation or text

    def _known(self, number: int) -> Asked | None:
        """The request of that number; None where it is the hostile lane's."""
        place = number // 10 - 1
        known = 0 <= place < len(self._asked) and self._asked[place].number == number
        return self._asked[place] if known else None

    def _acts(self, number: int, stage: int) -> bool:
        """Return whether a request acts by its kind in that step, or before that part."""
        asked = self._known(number)
        return asked is None or asked.at == stage

    def _look_at(self, stages: dict[int, int]) -> None:
        """Do to a model what the kinds of a batch's requests do, given the step of each."""
        numbers = [number for number, stage in stages.items() if self._acts(number, stage)]
        kinds = {number % 10 for number in numbers}
        process = self._machine.current
        assert process is not None
        self._machine.sleep(int(self._chance.random() * 2 * self._profile.run_ns))
        for number in numbers:
            if number % 10 in (FATAL, HANGING):
                self._count_victim(self._asked[number // 10 - 1])
        if FATAL in kinds:
            self._machine.after(0, lambda: self.engine.kill(process, sigkill=False))
            self._machine.sleep(None)
        if HANGING in kinds:
            self._machine.sleep(None)
        if POISON in kinds:
            raise RuntimeError("poison")
        if REFUSED in kinds:
            raise InvalidInput("refused")

    def dies_of(self, values: Any) -> bool:
        """Return whether the process dies, now or soon, of a batch of numbers that it has begun."""
        fatal = [
            number
            for number, stage in {
                number_in(value): len(names_in(value)) for value in values.tolist()
            }.items()
            if number % 10 == FATAL and self._acts(number, stage)
        ]
        process = self._machine.current
        assert process is not None
        for number in fatal:
            self._count_victim(self._asked[number // 10 - 1])
        if fatal:
            in_ns = int(self._chance.random() * self._profile.run_ns)
            self._machine.after(in_ns, lambda: self.engine.kill(process, sigkill=False))
        return bool(fatal)

    def copies_ns(self, values: Any) -> int:
        """Return how long a device copied a batch of numbers that it has run: each time longer."""
        took_ns = next(self._runs)
        for value in values.tolist():
            if (asked := self._known(number_in(value))) is not None:
                asked.copies_ns.add(took_ns)
        return took_ns

    def _count_victim(self, asked: Asked) -> None:
        """Count another worker that dies of this request, in this collector's life."""
        asked.victims[self.engine.life] += 1
        allowed = _VICTIMS_AT_MOST * asked.rows
        if asked.model.places and not self.engine.sigkills:
            # Few rows are live: whatever one of them has ended with its worker begins again alone.
            allowed = MAX_DEATHS * asked.rows
        if asked.victims[self.engine.life] > allowed:
            self._complain(f"request {asked.number} takes one worker after the other")
