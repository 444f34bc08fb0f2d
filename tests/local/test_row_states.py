"""Tests engine/worker/row_states.py: what a model in steps returns in place of the right thing."""

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
        (np.zeros(2), f"begin returned a ndarray, {STATES}"),
        ((one for one in (1, 2)), f"begin returned a generator, {STATES}"),
    ],
)
def test_what_is_no_list_of_states_is_named(begun: Any, words: str) -> None:
    with pytest.raises(WrongCount) as caught:
        states(begun).begin(([1, 2],), 2)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("stepped", "words"),
    [
        (None, f"{PAIR}None"),
        (np.zeros(2), f"{PAIR}a ndarray"),
        ([1, 2], f"{PAIR}a list"),
        ((1, 2, 3), f"{PAIR}3 values"),
        ((1, True), f"step returned a bool {ENDED}"),
        ((1, None), f"step returned None {ENDED}"),
        ((1, np.zeros((2, 2))), f"step returned a ndarray {ENDED}"),
        ((1, [True]), "step said of 1 of 2 rows if they have ended"),
    ],
)
def test_what_is_no_pair_or_says_not_which_rows_have_ended_is_named(
    stepped: Any, words: str
) -> None:
    with pytest.raises(WrongResult) as caught:
        states(stepped=stepped).step([1, 2])
    assert str(caught.value) == words


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
