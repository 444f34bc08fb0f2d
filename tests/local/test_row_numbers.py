"""Tests engine/worker/row_states.py: rows of a model that is given the numbers of their places."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps_harness import NumberedCountdown, StepsHarness, in_steps

from ringbatch.engine.models.model import StepFunctions
from ringbatch.engine.worker.outputs import WrongCount, WrongResult
from ringbatch.engine.worker.row_states import RowNumbers
from ringbatch.shm.slot import Status

RESUMES = (("y", "so_far"),)


def numbered(places: int = 3, **more: Any) -> StepsHarness:
    resumes = more.pop("resumes", ())
    return StepsHarness(in_steps(places=places, resumes=resumes), make=NumberedCountdown, **more)


def model_of(harness: StepsHarness) -> NumberedCountdown:
    assert isinstance(harness.model, NumberedCountdown)
    return harness.model


def test_a_row_has_the_lowest_free_number_until_it_has_ended() -> None:
    harness = numbered()
    slots = [harness.send(count) for count in (2, 1, 3, 2, 1)]
    harness.finish()
    model = model_of(harness)
    assert model.given == [[0, 1, 2], [1], [0]]
    assert model.numbers == [[0, 1, 2], [0, 2, 1], [2, 1, 0]]
    assert [harness.seen[slot] for slot in slots] == [[0, 1], [0], [0, 1, 2], [0, 1], [0]]
    assert not model.rows


def test_rows_that_could_not_begin_leave_their_numbers() -> None:
    harness = numbered(refuses={7})
    slots = {count: harness.send(count) for count in (2, 7, 3)}
    harness.finish()
    assert harness.status(slots[7]) is Status.MODEL_FAILED
    assert model_of(harness).given == [[0, 1, 2], [0], [1], [1]]
    assert harness.seen[slots[3]] == [0, 1, 2]


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_row_that_failed_leaves_its_number(repeatable: bool) -> None:
    harness = numbered(repeatable=repeatable, fails_for={3})
    slots = [harness.send(count) for count in (2, 3, 4)]
    more = [harness.send(2) for _ in range(3)]
    harness.finish()
    assert harness.status(slots[1]) is Status.MODEL_FAILED
    assert [harness.seen[slot] for slot in more] == [[0, 1]] * 3
    assert {number for numbers in model_of(harness).given for number in numbers} == {0, 1, 2}


def test_a_row_with_nothing_left_takes_no_number() -> None:
    harness = numbered(2, resumes=RESUMES, done={4})
    slots = [harness.send(count) for count in (4, 2, 4, 3)]
    harness.finish()
    assert [harness.seen[slot] for slot in slots] == [[], [0, 1], [], [0, 1, 2]]
    assert model_of(harness).ended == [(2, "done"), (3, "done")]
    # The second row of 4 has come, and found nothing left either, before that of 3 does.
    assert model_of(harness).given == [[0, 1], [0], [0]]
    assert model_of(harness).numbers == [[1], [1], [0], [0], [0]]


@given(st.data())
def test_numbers_are_unique_below_the_number_of_places_and_come_back(data: st.DataObject) -> None:
    """Requests join, fail and are cancelled in any order."""
    places = data.draw(st.integers(1, 5))
    harness = numbered(places, refuses={7}, repeatable=data.draw(st.booleans()))
    model = model_of(harness)
    waiting: list[int] = []
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["send", "step", "fail", "cancel"]))
        if action == "send":
            waiting.append(harness.send(data.draw(st.integers(1, 7))))
        elif action == "cancel" and waiting:
            slot = waiting.pop()
            if slot in harness.seen and slot not in harness.replies:
                harness.cancel(slot)
        else:
            model.fails_for = {data.draw(st.integers(1, 7))} if action == "fail" else set()
            harness.step()
        assert model.rows.keys() <= {*range(places)}
    model.fails_for = set()
    harness.finish()
    # Cancelled rows get no answers.
    harness.step()
    assert not model.rows
    # All numbers are free again.
    last = [harness.send(2) for _ in range(places)]
    harness.finish()
    assert sorted(model.numbers[-1]) == [*range(places)]
    assert [harness.seen[slot] for slot in last] == [[0, 1]] * places


def begun(returned: object, *, resumes: tuple[tuple[str, str], ...] = ()) -> list[Any]:
    functions = StepFunctions(
        lambda _x, rows: returned, lambda rows: None, lambda row, reason: None, False, resumes, 2
    )
    return RowNumbers(functions, "m", 2).begin(([1, 2],), 2)


def test_begin_says_of_each_row_if_nothing_is_left() -> None:
    assert begun(None) == [0, 1]
    assert begun(None, resumes=RESUMES) == [0, 1]
    for returned in ([True, False], np.array([True, False]), [1, 0]):
        assert begun(returned, resumes=RESUMES) == [None, 1]


@pytest.mark.parametrize(
    ("returned", "resumes", "kind", "words"),
    [
        ([0, 1], (), WrongResult, "begin returned a list, but a begin that takes rows must return"),
        ([True], RESUMES, WrongCount, "begin must return None, or for each of 2 rows whether"),
        (7, RESUMES, WrongCount, "begin must return None, or for each of 2 rows whether"),
        ("no", RESUMES, WrongCount, "begin must return None, or for each of 2 rows whether"),
        ({0, 1}, RESUMES, WrongCount, "begin must return None, or for each of 2 rows whether"),
        ([0, 2], RESUMES, WrongResult, "True or False of each row, .* found 2 for row 1"),
        ([True, "no"], RESUMES, WrongResult, "True or False of each row, .* a str for row 1"),
    ],
)
def test_another_answer_of_begin_gets_its_words(
    returned: object, resumes: tuple[tuple[str, str], ...], kind: type[WrongResult], words: str
) -> None:
    with pytest.raises(kind, match=words):
        begun(returned, resumes=resumes)
