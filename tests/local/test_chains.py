"""Requests on their way through the steps of chains, with real collectors and workers in this
process.

Tests engine/worker/chain_steps.py and engine/worker/chain_tensors.py.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from chain_harness import Death, House, Part, chain, step
from chain_models import ABC, LINE, X, Y
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.chain_step import advance_requests
from ringbatch.engine.models.model import InvalidInput
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

IDS = Tensor("ids", "INT64", [-1])
TEXT = Tensor("text", "BYTES", [])
VECTOR = Tensor("vector", "FP32", [2])
SCORE = Tensor("score", "FP32", [])
HALF = Tensor("h", "BF16", [2])


def tokenize(text: Any) -> Any:
    rows = [[*t] for t in text.reshape(-1)]
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows], "<i8")


def encode(ids: Any) -> Any:
    return np.stack([ids.sum(axis=1), (ids != 0).sum(axis=1)], axis=1).astype("<f4")


def rank(vector: Any, text: Any) -> Any:
    labels = np.empty(len(text), object)
    labels[:] = [t[::-1] for t in text.reshape(-1)]
    return vector.sum(axis=1).astype("<f4"), labels


SEARCH = {
    "tokenize": Part([TEXT], [IDS], tokenize),
    "encode": Part([IDS], [VECTOR], encode, workers=2),
    "rank": Part([VECTOR, TEXT], [SCORE, Tensor("label", "BYTES", [])], rank),
}
TEXTS = chain("search", "tokenize", "encode", "rank")


def dies(*_: Any) -> None:
    raise Death


def texts(*rows: str) -> Any:
    found = np.empty(len(rows), object)
    found[:] = [row.encode() for row in rows]
    return found


@pytest.mark.parametrize("count", [1, 3, FEW, FEW + 8])
def test_a_chain_answers_as_its_models_called_one_after_the_other(count: int) -> None:
    house = House(LINE, ABC)
    for number in range(count):
        house.send("abc", [[number, number + 1, number + 2]])
    house.settle()
    assert len(house.answers) == count
    assert house.batches == [("a", count), ("b", count), ("c", count)]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_requests_of_several_rows_pass_whole(rows: int) -> None:
    house = House(LINE, ABC)
    for number in range(4):
        house.send("abc", [[number + row, row, 0] for row in range(rows)])
    house.settle()
    assert len(house.answers) == 4


def test_tensors_of_any_size_pass_and_requests_share_batches_where_they_are_alike() -> None:
    house = House(SEARCH, TEXTS)
    for text in ("abc", "xyz", "much longer", "a"):
        house.send("search", texts(text))
    house.settle()
    assert len(house.answers) == 4
    sizes = [rows for name, rows in house.batches if name == "encode"]
    # Tokenized together, they were padded to one length by their own model.
    assert sum(sizes) == 4
    assert house.answers[3][1].tolist() == [b"regnol hcum"]  # type: ignore[union-attr]


def test_only_requests_whose_next_step_takes_the_same_sizes_share_its_batch() -> None:
    house = House(SEARCH, TEXTS)
    house.send("search", texts("ab"))
    house.settle()
    house.send("search", texts("abc"))
    house.step_collector()
    house.step_worker(0)
    house.send("search", texts("abcde"))
    house.step_collector()
    house.settle()
    assert [rows for name, rows in house.batches if name == "encode"] == [1, 1, 1]


def test_one_input_goes_to_several_models_and_their_outputs_into_one() -> None:
    parts = LINE | {"sum": Part([X, Y], [SCORE], lambda x, y: (x - y).sum(axis=1))}
    config = chain(
        "fan",
        step("a", {"y": "left"}),
        step("b", {"y": "right"}, x="request.x"),
        step("sum", x="left", y="right"),
        returns=["score", "left"],
    )
    house = House(parts, config)
    number = house.send("fan", [[1, 2, 3], [4, 5, 6]])
    house.settle()
    score, left = house.answers[number]
    assert score.tolist() == [-3.0, -12.0]  # type: ignore[union-attr]
    assert left.tolist() == [[2, 3, 4], [5, 6, 7]]  # type: ignore[union-attr]


def test_a_tensor_of_the_request_may_be_for_a_later_step_alone() -> None:
    parts = {"a": LINE["a"], "rank": Part([Y, TEXT], [SCORE], lambda y, t: y.sum(axis=1))}
    house = House(parts, chain("late", "a", step("rank", text="request.query")))
    assert [tensor.name for tensor in house.model("late").inputs] == ["x", "query"]
    house.send("late", [[1, 2, 3]], texts("q"))
    house.send("late", [[1, 2, 3]], texts("quite long"))
    house.settle()
    assert len(house.answers) == 2


def test_brain_floats_pass_as_they_are_stored() -> None:
    parts = {
        "a": Part([X], [HALF, Y], lambda x: (x[:, :2], x)),
        "b": Part([HALF, Y], [SCORE], lambda h, y: h.sum(axis=1) + y.sum(axis=1)),
    }
    house = House(parts, chain("halves", "a", "b", returns=["score", "h"]))
    number = house.send("halves", [[1, 2, 3]])
    house.settle()
    assert house.answers[number][1].tolist() == [[1, 2]]  # type: ignore[union-attr]


@pytest.mark.parametrize("edges", [(), (4, 8)])
def test_a_step_may_pad_its_inputs(edges: tuple[int, ...]) -> None:
    parts = SEARCH | {
        "encode": SEARCH["encode"]._replace(
            edges=edges, more={"pad_variable_length": True, "length_buckets": edges}
        )
    }
    house = House(parts, TEXTS)
    for text in ("ab", "abc", "abcd"):
        house.send("search", texts(text))
        house.step_collector()
        house.step_worker(0)
    house.settle()
    assert len(house.answers) == 3


def test_a_chain_of_one_step_is_that_model() -> None:
    house = House(LINE, chain("alone", "a"))
    house.send("alone", [[1, 2, 3]])
    house.settle()
    assert len(house.answers) == 1


def test_the_data_of_a_step_is_made_once_for_each_step_of_a_model() -> None:
    house = House(LINE, chain("again", "a", "b", "a"))
    runner = house.workers[0]._runner
    made: list[object] = []
    place_of = runner._place_of  # type: ignore[union-attr]

    def noted(asked: int) -> Any:
        made.append(place_of(asked))
        return made[-1]

    runner._place_of = noted  # type: ignore[union-attr]
    for number in range(3):
        house.send("again", [[number, 2, 3]])
        house.settle()
    assert len(made) > 3
    assert len({id(place) for place in made}) == 2


def test_the_same_model_may_be_several_steps() -> None:
    house = House(LINE, chain("again", "a", "a", "b", "a"))
    house.send("again", [[1, 2, 3]])
    house.send("again", [[4, 5, 6]])
    house.settle()
    assert [name for name, _ in house.batches] == ["a", "a", "b", "a"]


def test_requests_to_a_model_itself_are_in_batches_of_their_own() -> None:
    house = House(LINE, ABC, chain("bc", "b", "c"))
    for number in range(3):
        house.send("abc", [[number, 0, 0]])
        house.send("b", [[number, 1, 0]])
        house.send("bc", [[number, 2, 0]])
    house.settle()
    assert len(house.answers) == 9
    assert sorted(house.batches) == [("a", 3), ("b", 3), ("b", 3), ("b", 3), ("c", 3), ("c", 3)]


def test_kept_tensors_that_do_not_fit_are_sent_again_with_more_room() -> None:
    house = House(SEARCH, TEXTS)
    number = house.send("search", texts("a text of some length" * 9), room=512)
    house.settle()
    assert number in house.answers


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_request_that_fails_in_a_step_fails_alone(failing: str) -> None:
    def predict(x: Any) -> Any:
        if (x > 40).any():
            raise InvalidInput("more than forty")
        return x

    house = House(LINE | {failing: Part([X], [Y], predict)}, ABC)
    sound = [house.send("abc", [[n, 0, 0]]) for n in range(3)]
    bad = house.send("abc", [[100, 0, 0]])
    house.step_collector()
    began_ns = house.now_ns
    house.run_ns = 100
    house.settle()
    assert house.answers[bad] == (Status.INVALID, "more than forty")
    assert house.final_answers[bad].began_ns == began_ns, "the first step's"
    assert all(isinstance(house.answers[number], list) for number in sound)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_deadline_that_comes_in_a_step_ends_the_request_there(at: int) -> None:
    house = House(LINE, ABC)
    number = house.send("abc", [[1, 2, 3]], deadline_ns=house.now_ns + 100)
    for worker in range(at):
        house.step_collector()
        house.step_worker(worker)
    house.now_ns += 101
    house.settle()
    assert house.answers[number][0] is Status.EXPIRED
    assert [name for name, _ in house.batches] == ["a", "b", "c"][:at]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_request_whose_client_goes_is_dropped_in_the_step_where_it_is(at: int) -> None:
    house = House(LINE, ABC)
    number = house.send("abc", [[1, 2, 3]])
    for worker in range(at):
        house.step_collector()
        house.step_worker(worker)
    house.cancel(number)
    house.settle()
    assert house.client.lane.in_flight == 0
    assert [name for name, _ in house.batches] == ["a", "b", "c"][:at]


@pytest.mark.parametrize("parts_config", [(LINE, ABC), (SEARCH, TEXTS)])
def test_whenever_a_worker_dies_nothing_is_lost_or_wrong(parts_config: Any) -> None:
    """At each point of the whole way one worker dies, whichever is at work then."""
    parts, config = parts_config
    values = [[[1, 2, 3]], [[4, 5, 6]]] if parts is LINE else [texts("one"), texts("another")]
    died = 0
    for point in range(200):
        house = House(parts, config)
        house.points = iter([*repeat(False, point), True])
        for value in values:
            house.send(config.name, value)
        house.settle()
        assert len(house.answers) == len(values)
        assert all(isinstance(answer, list) for answer in house.answers.values())
        assert house.collector.in_flight == 0
        if next(house.points, None) is None:
            died += 1
        else:
            break
    assert died > 30


@pytest.mark.parametrize(("failing", "values"), [("b", [[[9, 9, 9]]]), ("c", [[[9, 9, 9]]])])
def test_kept_tensors_outlive_a_worker_that_dies_while_it_refuses(
    failing: str, values: Any
) -> None:
    """The text of an error must not lie where the step finds its inputs when it is run again."""

    def predict(x: Any) -> Any:
        raise InvalidInput(f"{x.tolist()} is refused, in words that take more room than it")

    died = 0
    for point in range(100):
        house = House(LINE | {failing: Part([X], [Y], predict)}, ABC)
        house.points = iter([*repeat(False, point), True])
        number = house.send("abc", *values)
        house.settle()
        given = {"b": [[10.0] * 3], "c": [[20.0] * 3]}[failing]
        text = f"{given} is refused, in words that take more room than it"
        assert house.answers[number] == (Status.INVALID, text)
        if next(house.points, None) is None:
            died += 1
        else:
            break
    assert died > 10


def test_a_collector_that_dies_while_it_gives_up_a_request_leaves_it_to_be_run_from_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House(LINE, ABC)
    number = house.send("abc", [[9, 9, 9]])
    for death in range(2):
        for _ in range(12):
            house.step_collector()
            house.step_worker(0)
        if death:
            # Amid its answer: the text is there, and DONE is not.
            with monkeypatch.context() as context:
                context.setattr(EngineSlots, "answer", dies)
                with pytest.raises(Death):
                    house.die(1, killed=False)
            house.new_collector()
        house.die(1, killed=False)
    house.settle()
    assert isinstance(house.answers[number], list)


@pytest.mark.parametrize("killer", ["a", "b", "c"])
def test_a_request_that_two_workers_crash_with_in_a_step_is_refused_from_then_on(
    killer: str,
) -> None:
    house = House(LINE, ABC)
    number = "abc".index(killer)
    bad = house.send("abc", [[9, 9, 9]])
    for _ in range(2):
        for _ in range(12):
            house.step_collector()
            for worker in range(3):
                if worker != number:
                    house.step_worker(worker)
        house.die(number, killed=False)
    house.settle()
    assert house.answers[bad][0] is Status.WORKER_DIED
    again, other = house.send("abc", [[9, 9, 9]]), house.send("abc", [[9, 9, 8]])
    house.settle()
    assert house.answers[again][0] is Status.WORKER_DIED
    assert isinstance(house.answers[other], list)


@pytest.mark.parametrize("at", range(7))
def test_a_collector_that_takes_over_has_every_request_answered(at: int) -> None:
    house = House(SEARCH, TEXTS)
    for text in ("one", "two"):
        house.send("search", texts(text))
    for _ in range(at):
        house.step_collector()
        for worker in range(len(house.workers)):
            house.step_worker(worker)
            if at % 2:
                house.step_collector()
    house.new_collector()
    house.settle()
    assert len(house.answers) == 2


@given(
    st.lists(st.tuples(st.sampled_from("skwcdn"), st.integers(0, 3)), max_size=60),
    st.lists(
        st.tuples(
            st.sampled_from(["search", "encode", "short"]), st.text("abc ", min_size=1, max_size=9)
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_answers_are_right_in_every_order_of_moves_and_deaths(
    moves: Sequence[tuple[str, int]], requests: Sequence[tuple[str, str]]
) -> None:
    house = House(SEARCH, TEXTS, chain("short", "tokenize", "encode"))
    waiting = [*requests]
    for move, number in moves:
        if move == "s" and waiting:
            name, text = waiting.pop()
            value = texts(text) if name != "encode" else tokenize(texts(text))
            house.send(name, value)
        elif move == "w":
            house.step_worker(number)
        elif move == "k":
            house.die(number)
        elif move == "d":
            house.points = iter([*repeat(False, number), True])
            house.step_worker(number)
            house.points = iter(())
        elif move == "n":
            house.new_collector()
        else:
            house.step_collector()
    house.settle()
    for answer in house.answers.values():
        # Killed four times while it was alone, a request is given up.
        assert isinstance(answer, list) or answer[0] is Status.WORKER_DIED


@pytest.mark.parametrize("dies", [False, True])
def test_a_collector_that_takes_over_knows_at_which_step_workers_are(dies: bool) -> None:
    house = House(LINE, ABC)
    house.send("abc", [[1, 2, 3]])
    house.step_collector()
    house.step_worker(0)
    house.step_collector()
    house.new_collector()
    if dies:
        house.die(1)
    house.settle()
    assert [name for name, _ in house.batches] == ["a", "b", "c"]
    assert len(house.answers) == 1


def test_requests_for_a_step_are_grouped_by_the_sizes_of_its_inputs() -> None:
    parts = SEARCH | {"encode": SEARCH["encode"]._replace(workers=1)}
    house = House(parts, chain("short", "tokenize", "encode"))
    house.send("encode", [[1, 2, 3]])
    house.step_collector()
    numbers = []
    for text in ("abc", "abcde", "xyz"):
        numbers.append(house.send("short", texts(text)))
        house.step_collector()
        house.step_worker(0)
    house.settle()
    assert [house.final_answers[number].batch_rows for number in numbers] == [2, 1, 2]


def test_a_key_that_a_frontend_leaves_no_room_for_is_none() -> None:
    (request,) = advance_requests([Request(7, 1, 2, 640, 8, 100, 64, 704, 5, 9, 4)], 3, 64, 8, 6)
    assert request == Request(7, 3, 2, 8, 8, 100, 704 + 64, 704, 6, 9, 4)
    (request,) = advance_requests([Request(7, 1, 2, 640, 8, 71, 64, 704, 5, 9, 4)], 3, 64, 8, 6)
    assert request == Request(7, 3, 2, 0, 0, 71, 704, 704, 6, 9, 4)
