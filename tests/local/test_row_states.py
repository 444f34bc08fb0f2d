"""Tests engine/worker/row_states.py: what a model in steps returns in place of the right thing."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from steps_harness import Countdown, Row, StepsHarness

from ringbatch.engine.models.model import StepFunctions
from ringbatch.engine.worker.outputs import WrongCount, WrongResult
from ringbatch.engine.worker.row_states import RowStates
from ringbatch.shm.slot import Status

PAIR = "step must return a pair: the outputs, and which rows have ended; found "
STATES = "and no list with a state for each of 2 rows"
SAYS = "step must say True or False of each row, if it has ended; found "
ENDED = "behind the outputs, and no list that says of each of 2 rows whether it has ended"


def states(begun: Any = None, stepped: Any = None) -> RowStates:
    functions = StepFunctions(lambda *_: begun, lambda _: stepped, lambda *_: None)
    return RowStates(functions, "m")


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ([1], "begin returned 1 states for 2 rows"),
        (None, f"begin returned None, {STATES}"),
        ({1: 2, 3: 4}, f"begin returned a dict, {STATES}"),
        (np.zeros(2), f"begin returned an ndarray, {STATES}"),
        ((one for one in (1, 2)), f"begin returned a generator, {STATES}"),
        ("ab", f"begin returned a str, {STATES}"),
        (b"ab", f"begin returned a bytes, {STATES}"),
    ],
)
def test_an_invalid_list_of_states_is_named(begun: Any, words: str) -> None:
    with pytest.raises(WrongCount) as caught:
        states(begun).begin(([1, 2],), 2)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("stepped", "words"),
    [
        (None, f"{PAIR}None"),
        (np.zeros(2), f"{PAIR}an ndarray"),
        ([1, 2], f"{PAIR}a list"),
        ((1, 2, 3), f"{PAIR}3 values"),
        ((1, True), f"step returned a bool {ENDED}"),
        ((1, None), f"step returned None {ENDED}"),
        ((1, "10"), f"step returned a str {ENDED}"),
        ((1, b"\0\1"), f"step returned a bytes {ENDED}"),
        ((1, {0: True, 1: False}), f"step returned a dict {ENDED}"),
        ((1, {0, 1}), f"step returned a set {ENDED}"),
        ((1, np.array(True)), f"step returned an ndarray {ENDED}"),
        ((1, [True]), "step said of 1 of 2 rows if they have ended"),
        ((1, np.zeros((2, 2), bool)), f"{SAYS}a list for row 0"),
        ((1, np.zeros(2)), f"{SAYS}0.0 for row 0"),
        ((1, [True, None]), f"{SAYS}None for row 1"),
        ((1, [False, "no"]), f"{SAYS}a str for row 1"),
        ((1, [False, 2]), f"{SAYS}2 for row 1"),
        ((1, [False, -1]), f"{SAYS}-1 for row 1"),
        ((1, [False, []]), f"{SAYS}a list for row 1"),
        ((1, [False, np.array([True, False])]), f"{SAYS}an ndarray for row 1"),
    ],
)
def test_a_step_result_without_pairs_or_ended_rows_is_named(stepped: Any, words: str) -> None:
    with pytest.raises(WrongResult) as caught:
        states(stepped=stepped).step([1, 2])
    assert str(caught.value) == words


class Tensor:
    """An array of torch, as far as this is about it."""

    def __init__(self, *values: bool) -> None:
        self._values = values

    def __iter__(self) -> Iterator["Tensor"]:
        return (Tensor(value) for value in self._values)

    def tolist(self) -> list[bool] | bool:
        """Return the values; that of a single one is no list."""
        return [*self._values] if len(self._values) > 1 else self._values[0]


@pytest.mark.parametrize(
    "ended",
    [
        [True, False],
        (True, False),
        (one for one in (True, False)),
        [np.True_, np.False_],
        [1, 0],
        np.array([True, False]),
        np.array([1, 0]),
        np.array([[True], [False]]),
        [np.array([True]), np.array(False)],
        Tensor(True, False),
    ],
)
def test_truths_of_all_kinds_say_which_rows_have_ended(ended: Any) -> None:
    assert states(stepped=("parts", ended)).step([1, 2]) == ("parts", [True, False])


class Texts(Countdown):
    """A model whose steps return a text, where a list with a part for each row is wanted."""

    def step(self, states: list[Row]) -> tuple[Any, list[bool]]:
        return "text", super().step(states)[1]


class Longer(Countdown):
    """A model whose steps return a part too many."""

    def step(self, states: list[Row]) -> tuple[Any, list[bool]]:
        parts, ended = super().step(states)
        return [*parts, 0], ended


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Texts, "step returned a str, not a list"),
        (Longer, "step returned 2 predictions for 1 instances"),
    ],
)
def test_wrong_parts_are_those_of_step(
    make: type[Countdown], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = StepsHarness(make=make)
    slot = harness.send(2)
    harness.finish()
    assert harness.status(slot) in (Status.MODEL_FAILED, Status.WRONG_COUNT)
    assert f"model m: {words};" in caplog.text
