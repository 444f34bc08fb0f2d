"""States of the rows of a model in steps: its own functions, called and checked.

A model makes a state for each row, of any kind. Or it makes none, and gets the numbers of its rows'
places instead: then the numbers are the states.
"""

import logging
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.model import RestartWorker, StepFunctions
from ringbatch.engine.worker.outputs import WrongCount, WrongResult
from ringbatch.shm.errors import type_in_words

logger = logging.getLogger("ringbatch.worker")


class RowStates:
    """States that the model makes.

    Args:
        steps: the model's functions.
        name: of the model, for messages.
    """

    def __init__(self, steps: StepFunctions, name: str) -> None:
        self._steps = steps
        self._name = name

    def begin(self, arguments: Any, count: int) -> list[Any]:
        """Begin so many rows, and return their states; None for one that has nothing left to do.

        Raises:
            WrongResult: the model returned something else.
        """
        states = self._steps.begin(*arguments)
        if not isinstance(states, Sequence) or isinstance(states, (str, bytes)):
            wanted = f"and no list with a state for each of {count} rows"
            raise WrongCount(f"begin returned {type_in_words(states)}, {wanted}")
        if len(states) != count:
            raise WrongCount(f"begin returned {len(states)} states for {count} rows")
        return [*states]

    def step(self, states: Sequence[Any]) -> tuple[Any, list[bool]]:
        """Run one step; return its outputs, and for each row whether it has ended.

        Raises:
            WrongResult: the model returned something else.
        """
        returned = self._steps.step(self._given(states))
        if not isinstance(returned, tuple) or len(returned) != 2:
            given = (
                f"{len(returned)} values"
                if isinstance(returned, tuple)
                else type_in_words(returned)
            )
            raise WrongResult(
                f"step must return a pair: the outputs, and which rows have ended; found {given}"
            )
        outputs, said = returned
        ended = _one_by_one(said)
        if ended is None:
            raise WrongCount(
                f"step returned {type_in_words(said)} behind the outputs, and no list that says of "
                f"each of {len(states)} rows whether it has ended"
            )
        if len(ended) != len(states):
            raise WrongCount(f"step said of {len(ended)} of {len(states)} rows if they have ended")
        return outputs, _truths(ended, "step must say True or False of each row, if it has ended")

    def end(self, state: Any, reason: str) -> None:
        """End a row that has left; what the model raises is logged."""
        try:
            self._steps.end(state, reason)
        except RestartWorker:
            raise
        except Exception:
            logger.exception("model %s: end raised; the row has left all the same", self._name)

    def _given(self, states: Sequence[Any]) -> Any:
        """Return states as the model takes them."""
        return [*states]


class RowNumbers(RowStates):
    """Numbers of places, from 0; a row takes the lowest that is free.

    Args:
        steps: the model's functions.
        name: of the model, for messages.
        places: how many there are.
    """

    def __init__(self, steps: StepFunctions, name: str, places: int) -> None:
        super().__init__(steps, name)
        self._free: Final = [*range(places)]
        heapify(self._free)

    def begin(self, arguments: Any, count: int) -> list[Any]:
        """See `RowStates.begin`; the rows have numbers until they have ended.

        Raises:
            WrongResult: the model returned something else.
        """
        assert count <= len(self._free), "no more rows are live than there are places"
        rows = [heappop(self._free) for _ in range(count)]
        try:
            left = self._left(self._steps.begin(*arguments, rows=self._given(rows)), count)
        except BaseException:
            self._release(rows)
            raise
        self._release([row for row, goes_on in zip(rows, left, strict=True) if not goes_on])
        return [row if goes_on else None for row, goes_on in zip(rows, left, strict=True)]

    def _left(self, returned: object, count: int) -> list[bool]:
        """Return for each row whether it goes on."""
        if returned is None:
            return [True] * count
        if not self._steps.resumes:
            raise WrongResult(
                f"begin returned {type_in_words(returned)}, but a begin that takes rows must "
                "return None"
            )
        found = _one_by_one(returned)
        if found is None or len(found) != count:
            raise WrongCount(
                f"begin must return None, or for each of {count} rows whether nothing is missing "
                "behind its last part"
            )
        wanted = "begin must say True or False of each row, if nothing is missing"
        return [not one for one in _truths(found, wanted)]

    def end(self, state: Any, reason: str) -> None:
        """See `RowStates.end`; the number is free from then on."""
        super().end(state, reason)
        self._release([state])

    def _release(self, rows: Sequence[int]) -> None:
        for row in rows:
            heappush(self._free, row)

    def _given(self, states: Sequence[Any]) -> NDArray[np.int64]:
        return np.array(states, np.int64)


def _one_by_one(values: Any) -> list[Any] | None:
    """Return what a model says of its rows, in their order; None if it has no such order."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, (str, bytes, dict, set, frozenset)):
        return None
    try:
        return [*values]
    except TypeError:
        return None


def _truths(values: list[Any], wanted: str) -> list[bool]:
    """Return values that are each true or false; `wanted` begins the error's text.

    Raises:
        WrongResult: one is something else, which Python would take for true or false all the same.
    """
    if {*map(type, values)} <= {bool}:
        return values
    found = []
    for row, value in enumerate(values):
        truth = value if value is True or value is False else _truth(value)
        if truth is None:
            raise WrongResult(f"{wanted}; found {_shown(value)} for row {row}")
        found.append(truth)
    return found


def _truth(value: Any) -> bool | None:
    """Return whether a value is true, be it 0 or 1, or in an array of one; None if it says not."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return bool(value) if isinstance(value, int) and value in (0, 1) else None


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else type_in_words(value)


def row_states(steps: StepFunctions, name: str) -> RowStates:
    """Return the states of a model's rows, before the first has begun."""
    if steps.places is None:
        return RowStates(steps, name)
    return RowNumbers(steps, name, steps.places)
