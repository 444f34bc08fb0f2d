"""Run of a batch: each request's own answer, in memory claimed for it, for every kind of model."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runner_harness import BEGAN_NS, TEXT, Harness, X, Y, failed, identity
from segment_fixture import unpack

from ringbatch.engine.worker.bisect import PROBES
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 40])
def test_each_request_gets_its_own_rows_in_any_lane(count: int) -> None:
    harness = Harness(lambda x: x * 2, [X], [Y])
    refs = [harness.send_tensor([[i, -i]], lane=i % 2) for i in range(count)]
    replies = harness.run(*refs)
    assert [harness.value(r) for r in replies] == [[[2.0 * i, -2.0 * i]] for i in range(count)]
    assert harness.calls == [count]


def test_an_answer_describes_its_batch() -> None:
    harness = Harness(identity, [X], [Y])
    for count in (1, 6, FEW + 1):
        for reply in harness.run(*(harness.send_tensor([[0, 0]]) for _ in range(count))):
            answer = reply.answer
            assert (answer.batch, answer.batch_rows, answer.reason) == (77, 9, Reason.FULL)
            assert (answer.dispatched_ns, answer.began_ns) == (5, BEGAN_NS)
            assert (answer.gathered_ns, answer.ran_ns, answer.finished_ns) == (123, 123, 123)
            assert answer.attempts == 1


def test_one_wake_up_for_each_lane_and_batch() -> None:
    harness = Harness(identity, [X], [Y])
    harness.run(*(harness.send_tensor([[0, 0]], lane=i % 2) for i in range(20)))
    assert sorted(harness.wakes) == [0, 1]


def test_requests_of_different_row_counts_share_a_batch() -> None:
    harness = Harness(identity, [X], [Y])
    values = [[[1, 2]], [[3, 4], [5, 6], [7, 8]], [[9, 9], [8, 8]]]
    refs = [harness.send_tensor(v, rows=len(v)) for v in values]
    replies = harness.run(*refs)
    assert [harness.value(r, len(v)) for r, v in zip(replies, values, strict=True)] == values
    assert harness.calls == [6]


def test_a_model_without_a_batch_dimension_gets_and_gives_one_instance() -> None:
    seen: list[Any] = []

    def predict(x: Any, s: Any) -> Any:
        seen.extend((x.shape, s.shape, s.item()))
        return x.sum(), x + 1

    harness = Harness(
        predict, [X, TEXT], [Tensor("n", "FP32", []), Tensor("y", "FP32", [-1])], batched=False
    )
    (reply,) = harness.run(harness.send_tensor([[1, 2]], [b"t"]))
    assert reply.answer.status is Status.OK, reply.data
    assert [array.tolist() for array in unpack(harness.outputs, 1, reply.data)] == [[3], [[2, 3]]]
    assert seen == [(2,), (), b"t"]


@pytest.mark.parametrize("returned", [[[1, 2]], [1], 1], ids=["a-batch", "short", "a-number"])
def test_a_result_has_the_shape_of_one_instance(returned: Any) -> None:
    harness = Harness(lambda x: returned, [X], [Y], batched=False)
    (reply,) = harness.run(harness.send_tensor([[1, 2]]))
    assert failed(reply, Status.MODEL_FAILED, f"has shape {list(np.shape(returned))}, declared is")


def test_without_declared_inputs_it_gets_and_gives_one_value() -> None:
    harness = Harness(lambda text: {"was": text}, batched=False)
    (reply,) = harness.run(harness.send_json('["ab"]'))
    assert harness.value(reply) == [{"was": "ab"}]


def test_a_result_without_room_says_how_much_it_takes() -> None:
    harness = Harness(identity, [X], [Y])
    refs = [harness.send_tensor([[i, i]], result_bytes=8 - (i == 1)) for i in range(3)]
    replies = harness.run(*refs)
    assert replies[1].answer.status is Status.RESULT_TOO_LARGE
    assert replies[1].answer.size == 8
    assert [harness.value(replies[i]) for i in (0, 2)] == [[[0, 0]], [[2, 2]]]
    assert not harness.runner.failed
    assert harness.calls == [3]


@pytest.mark.parametrize("count", [1, 8])
def test_a_result_without_room_in_a_batch_of_equals_says_so_too(count: int) -> None:
    harness = Harness(identity, [X], [Y])
    replies = harness.run(*(harness.send_tensor([[i, i]], result_bytes=7) for i in range(count)))
    assert {(r.answer.status, r.answer.size) for r in replies} == {(Status.RESULT_TOO_LARGE, 8)}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
)
def test_every_request_but_the_bad_one_gets_its_own_rows_in_any_batch(
    requests: list[tuple[int, int]], bad: set[int]
) -> None:
    def predict(x: Any) -> Any:
        if bad & set(x[:, 0].tolist()):
            raise RuntimeError
        return x + 0.5

    harness = Harness(predict, [X], [Y])
    refs = [
        harness.send_tensor([[i, row] for row in range(rows)], rows=rows, lane=lane)
        for i, (rows, lane) in enumerate(requests)
    ]
    replies = harness.run(*refs)
    # Where so many fail alone that the model is blamed, the others may fail with them.
    is_blamed = len(bad & set(range(len(requests)))) >= PROBES
    for number, (reply, (rows, _)) in enumerate(zip(replies, requests, strict=True)):
        if number in bad:
            assert reply.answer.status is Status.MODEL_FAILED
        elif not is_blamed or reply.answer.status is not Status.MODEL_FAILED:
            assert harness.value(reply, rows) == [[number + 0.5, r + 0.5] for r in range(rows)]
