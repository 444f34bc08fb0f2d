"""Tests engine/worker/steps_runner.py: rows that take steps before they have something to say."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from steps_harness import Countdown, Row, StepsHarness, in_steps

from ringbatch.engine.worker.joined_parts import empty_rows
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.outputs import Checker
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor


@dataclass
class Slow(Countdown):
    """Countdown whose rows say something only in their last steps, or as `said` has it.

    Attributes:
        loud: the steps in which a row says its number, counted from the last, which is 1.
        said: other words of a row, by start and step.
    """

    loud: tuple[int, ...] = (2, 1)
    said: dict[tuple[int, int], Any] = field(default_factory=dict)

    def step(self, states: list[Row]) -> tuple[Any, list[bool]]:
        lefts = [row.left for row in states]
        numbers, ended = super().step(states)
        parts = [
            self.said.get((row.start, number), [number] if left in self.loud else [])
            for row, left, number in zip(states, lefts, numbers, strict=True)
        ]
        return parts, ended


def slow(**more: Any) -> StepsHarness:
    return StepsHarness(more.pop("entry", None), make=Slow, **more)


def test_steps_without_a_part_send_none() -> None:
    harness = slow()
    late, early = harness.send(6), harness.send(2)
    harness.step(3)
    assert harness.seen[late] == []
    assert harness.seen[early] == [[0], [1]]
    harness.finish()
    assert harness.seen[late] == [[4], [5]]
    assert harness.model.steps == [[6, 2]] * 2 + [[6]] * 4


def test_one_answer_has_all_parts() -> None:
    harness = slow()
    slot = harness.send(6, in_parts=False)
    harness.finish()
    assert json.loads(harness.replies[slot].data) == [[4, 5]]


def test_an_answer_without_a_part_has_an_empty_one() -> None:
    harness = slow(loud=())
    events, whole = harness.send(3), harness.send(3, in_parts=False)
    harness.finish()
    assert harness.seen[events] == [[]]
    assert json.loads(harness.replies[whole].data) == [[]]
    assert {harness.status(events), harness.status(whole)} == {Status.OK}


def test_an_end_may_say_nothing() -> None:
    harness = slow(loud=(3, 2))
    events, whole = harness.send(3), harness.send(3, in_parts=False)
    harness.finish()
    assert harness.seen[events] == [[0], [1]]
    assert json.loads(harness.replies[whole].data) == [[0, 1]]


@pytest.mark.parametrize(("nothing", "part"), [("", {"a": 1}), ([], {"a": 1}), ("", 7), ([], "x")])
def test_nothing_is_no_last_part(nothing: Any, part: Any) -> None:
    """The last of parts that are not joined counts, and an empty one is no part."""
    said = {(3, 0): nothing, (3, 1): part, (3, 2): nothing}
    harness = slow(said=said)
    events, whole = harness.send(3), harness.send(3, in_parts=False)
    harness.finish()
    assert harness.seen[events] == [part]
    assert json.loads(harness.replies[whole].data) == [part]


@pytest.mark.parametrize("part", [None, 0, False, {}, " ", [[]], [""]])
def test_a_piece_of_output_is_a_part(part: Any) -> None:
    harness = slow(said={(2, 0): part, (2, 1): part})
    slot = harness.send(2)
    harness.finish()
    assert harness.seen[slot] == [part, part]


def test_rows_without_a_part_begin_again_behind_all_their_steps() -> None:
    """Else they come together to the step that failed, again and again."""
    harness = slow()
    steps = harness.model.steps

    def fail() -> None:
        harness.model.fails_for = {9} if len(steps) in (4, 8) else set()

    harness.model.on_step = fail
    slots = {count: harness.send(count) for count in (9, 8)}
    harness.finish()
    assert harness.model.begun == [[9, 8], [9], [8]]
    assert steps == [[9, 8]] * 4 + [[9]] * 4 + [[8]] * 4 + [[8]] * 4
    assert harness.status(slots[9]) is Status.MODEL_FAILED
    assert harness.seen[slots[8]] == [[6], [7]]


def test_a_row_that_begins_again_counts_its_steps_anew() -> None:
    harness = slow()
    steps = harness.model.steps

    def fail() -> None:
        harness.model.fails_for = {20} if len(steps) in (2, 8) else set()

    harness.model.on_step = fail
    slots = [harness.send(count) for count in (20, 19)]
    harness.finish()
    first = [[20, 19]] * 2 + [[20]] * 2 + [[19]] * 2
    assert steps[:18] == first + [[20, 19]] * 2 + [[20]] * 4 + [[19]] * 4 + [[20, 19]] * 2
    assert [harness.seen[slot] for slot in slots] == [[[18], [19]], [[17], [18]]]


def test_a_row_without_a_part_runs_again_after_its_workers_death() -> None:
    harness = slow(entry=in_steps())
    slot = harness.send(6)
    harness.step(3)
    harness.kill(0)
    harness.start_worker(0)
    harness.finish()
    assert harness.status(slot) is Status.OK
    assert harness.seen[slot] == [[4], [5]]


OPEN = Tensor("a", "INT64", [-1])
PAIRS = Tensor("b", "FP32", [-1, 2])
TEXTS = Tensor("c", "BYTES", [-1])
FIXED = Tensor("d", "INT64", [])
OPEN_TWICE = Tensor("f", "FP32", [-1, -1])
WIDE = Tensor("e", "FP32", [2, -1])


@pytest.mark.parametrize(
    ("tensors", "returned", "empty"),
    [
        ([OPEN], [[1], [2]], set()),
        ([OPEN], [[], [2], []], {0, 2}),
        ([OPEN], np.zeros((3, 0), int), {0, 1, 2}),
        ([TEXTS], [[b"x"], []], {1}),
        ([TEXTS], [[b""], []], {1}),
        ([PAIRS], [np.zeros((0, 2)), np.zeros((1, 2))], {0}),
        ([OPEN, TEXTS], ([[], [1], []], [[], [], [b"x"]]), {0}),
        ([OPEN, TEXTS], ([[], [1]], np.zeros((2, 0), object)), {0}),
        ([OPEN, TEXTS], ([[], []], [[b"x"], [b"y"]]), set()),
        # An output of which the last part counts is never empty.
        ([OPEN, FIXED], ([[], []], [1, 2]), set()),
        ([FIXED], [1, 2], set()),
        ([OPEN_TWICE], [np.zeros((2, 0)), np.zeros((0, 3))], {1}),
        ([WIDE], np.zeros((2, 2, 0)), set()),
    ],
)
def test_which_rows_are_empty(tensors: list[Tensor], returned: Any, empty: set[int]) -> None:
    first = returned[0] if isinstance(returned, tuple) else returned
    outputs = Checker(tensors).outputs(returned, len(first))
    assert {*empty_rows(outputs, tensors)} == empty


def test_which_values_are_empty() -> None:
    codec = JsonCodec(memoryview(b""))
    results = codec.check(["", [], " ", [[]], None, 0, {}], [1] * 7)
    assert {*codec.empty_rows(results)} == {0, 1}
