"""A model that raises or answers wrongly: the request that is to blame fails, and it alone."""

import math
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runner_harness import TEXT, Harness, X, Y, failed

from ringbatch.engine.models.model import InvalidInput, RestartWorker
from ringbatch.engine.worker.bisect import PROBES
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

TWO = [Y, Tensor("z", "FP32", [2])]


def bound(requests: int) -> int:
    return 2 * math.ceil(math.log2(requests)) + 1


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32, 33])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_where_the_model_raises_the_bad_request_fails_alone(count: int, place: str) -> None:
    bad = {"first": 0, "middle": count // 2, "last": count - 1}[place]

    def predict(x: Any) -> Any:
        if (x[:, 0] == bad).any():
            raise ZeroDivisionError("secret of the model")
        return x

    harness = Harness(predict, [X], [Y])
    refs = [harness.send_tensor([[i, 0]], lane=i % 2) for i in range(count)]
    for number, reply in enumerate(harness.run(*refs)):
        if number == bad:
            assert failed(reply, Status.MODEL_FAILED, "model 'm' raised ZeroDivisionError")
            assert b"secret" not in reply.data, "details are for the log"
        else:
            assert harness.value(reply) == [[number, 0]]
    assert len(harness.calls) <= bound(count)
    assert harness.runner.failed


def test_where_every_request_makes_it_raise_each_fails() -> None:
    def predict(x: Any) -> Any:
        raise RuntimeError

    harness = Harness(predict, [X], [Y])
    replies = harness.run(*(harness.send_tensor([[0, 0]]) for _ in range(8)))
    assert all(failed(reply, Status.MODEL_FAILED, "raised RuntimeError") for reply in replies)
    assert len(harness.calls) == 15


def test_after_a_failure_the_next_batch_is_no_failure() -> None:
    def predict(x: Any) -> Any:
        if x[0, 0] < 0:
            raise RuntimeError
        return x

    harness = Harness(predict, [X], [Y])
    harness.run(harness.send_tensor([[-1, 0]]))
    assert harness.runner.failed
    harness.run(harness.send_tensor([[1, 0]]))
    assert not harness.runner.failed


def test_a_model_that_spoils_its_input_and_raises_gets_it_unspoilt_again() -> None:
    def predict(x: Any) -> Any:
        bad = (x[:, 0] == 3).any()
        x += 1
        if bad:
            raise RuntimeError
        return x

    harness = Harness(predict, [X], [Y])
    replies = harness.run(*(harness.send_tensor([[i, 0]]) for i in range(8)))
    good = [harness.value(reply) for i, reply in enumerate(replies) if i != 3]
    assert good == [[[i + 1, 1]] for i in range(8) if i != 3]


def test_an_input_the_model_refuses_is_the_clients_fault_and_its_text_the_clients() -> None:
    def predict(x: Any) -> Any:
        if (x[:, 0] < 0).any():
            raise InvalidInput("ages are not negative")
        return x

    harness = Harness(predict, [X], [Y])
    replies = harness.run(*(harness.send_tensor([[i - 2, 0]]) for i in range(8)))
    assert [reply.answer.status for reply in replies[:3]] == [Status.INVALID] * 2 + [Status.OK]
    assert replies[0].data == b"ages are not negative"
    assert all(reply.answer.status is Status.OK for reply in replies[2:])


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b"the model refused the input"),
        ("half a pair: \ud83d", b"half a pair: ?"),
        ("ä" * 1000, ("ä" * 512).encode()),
    ],
    ids=["no-text", "half-a-surrogate-pair", "longer-than-the-room"],
)
def test_any_text_of_a_refusal_can_be_written(text: str, data: bytes) -> None:
    def predict(instances: Any) -> Any:
        raise InvalidInput(text)

    harness = Harness(predict)
    (reply,) = harness.run(harness.send_json("[1]"))
    assert reply == (reply.answer, data)
    assert reply.answer.status is Status.INVALID


WRONG: dict[str, tuple[Callable[[Any], Any], str, Status]] = {
    "rows-missing": (lambda x: x[1:], "model 'm': output 'y' has shape", Status.WRONG_COUNT),
    "a-row-more": (lambda x: np.vstack([x, x[:1]]), "declared is [", Status.WRONG_COUNT),
    "wrong-shape": (lambda x: x[:, :1], "output 'y' has shape", Status.MODEL_FAILED),
    "nothing": (lambda x: None, "output 'y' is None, and no array", Status.MODEL_FAILED),
    "a-generator": (
        lambda x: (row for row in x),
        "output 'y' is a generator, and no array",
        Status.MODEL_FAILED,
    ),
    "a-number": (lambda x: 1, "output 'y' has shape []", Status.MODEL_FAILED),
    "ragged": (
        lambda x: [[1], [2, 3]] * len(x),
        "output 'y' is no array",
        Status.MODEL_FAILED,
    ),
    "texts": (lambda x: x.astype(str), "declared is FP32", Status.MODEL_FAILED),
    "another-name": (
        lambda x: {"z": x},
        "returned outputs ['z'], declared are ['y']",
        Status.MODEL_FAILED,
    ),
}


@pytest.mark.parametrize(("count", "runs"), [(1, 1), (2, 3), (32, 3 + PROBES)])
@pytest.mark.parametrize(("predict", "words", "status"), WRONG.values(), ids=WRONG.keys())
def test_a_model_whose_results_are_always_wrong_costs_a_few_runs_and_all_hear_of_it(
    predict: Callable[[Any], Any], words: str, status: Status, count: int, runs: int
) -> None:
    harness = Harness(predict, [X], [Y])
    replies = harness.run(*(harness.send_tensor([[i, 0]]) for i in range(count)))
    assert all(failed(reply, status, words) for reply in replies)
    assert len(harness.calls) == runs
    assert harness.runner.failed


BAD = 7
FAULTS_BY_ROW: dict[str, tuple[Tensor, Callable[[Any], Any]]] = {
    "beyond": (Tensor("y", "INT32", []), lambda x: np.where(x[:, 0] == BAD, 2**31, 1)),
    "nothing": (TEXT, lambda x: [None if row[0] == BAD else "text" for row in x]),
    "half-a-pair": (TEXT, lambda x: ["\ud800" if row[0] == BAD else "text" for row in x]),
    "masked": (Tensor("y", "FP32", []), lambda x: np.ma.masked_equal(x[:, 0], BAD)),
}
FAULTS_TOGETHER: dict[str, tuple[Tensor | list[Tensor], Callable[[Any], Any]]] = {
    "ragged": (Y, lambda x: [[1] if row[0] == BAD else [1, 2] for row in x]),
    "left-out": (Y, lambda x: x[x[:, 0] != BAD]),
    "objects": (Y, lambda x: [[None, 1] if row[0] == BAD else [1, 2] for row in x]),
    "numbers-too-large": (
        Tensor("y", "INT64", []),
        lambda x: [2**70 if row[0] == BAD else 1 for row in x],
    ),
    "another-kind": (TWO, lambda x: x if (x[:, 0] == BAD).any() else (x, x)),
}


@pytest.mark.parametrize("count", [17, FEW + 9])
@pytest.mark.parametrize(("output", "predict"), FAULTS_BY_ROW.values(), ids=FAULTS_BY_ROW.keys())
def test_an_unencodable_value_fails_its_own_request_in_the_same_run(
    output: Tensor, predict: Callable[[Any], Any], count: int
) -> None:
    harness = Harness(predict, [X], [output])
    replies = harness.run(*(harness.send_tensor([[i, 0]], lane=i % 2) for i in range(count)))
    assert failed(replies.pop(BAD), Status.MODEL_FAILED, f"output '{output.name}' holds")
    assert {reply.answer.status for reply in replies} == {Status.OK}
    assert harness.calls == [count]
    assert harness.runner.failed


@pytest.mark.parametrize("count", [17, FEW + 9])
@pytest.mark.parametrize(
    ("outputs", "predict"), FAULTS_TOGETHER.values(), ids=FAULTS_TOGETHER.keys()
)
def test_a_wrong_result_caused_by_one_input_fails_that_one_alone(
    outputs: Tensor | list[Tensor], predict: Callable[[Any], Any], count: int
) -> None:
    harness = Harness(predict, [X], outputs if isinstance(outputs, list) else [outputs])
    replies = harness.run(*(harness.send_tensor([[i, 0]], lane=i % 2) for i in range(count)))
    bad = replies.pop(BAD).answer.status
    assert bad in (Status.MODEL_FAILED, Status.WRONG_COUNT)
    assert {reply.answer.status for reply in replies} == {Status.OK}
    assert len(harness.calls) <= bound(count)


def test_predictions_that_are_too_few_because_of_one_input_fail_that_one_alone() -> None:
    harness = Harness(lambda instances: [x for x in instances if x != BAD])
    replies = harness.run(*(harness.send_json(f"[{i}]") for i in range(17)))
    assert failed(replies.pop(BAD), Status.WRONG_COUNT, "0 predictions for 1 instances")
    assert [harness.value(reply) for reply in replies] == [[i] for i in range(17) if i != BAD]


class Speechless(InvalidInput):
    """Error that has no text, as `str` and `repr` raise."""

    def __str__(self) -> str:
        raise KeyError("no words")

    __repr__ = __str__


class Garbled(str):
    """Text that cannot be encoded, split or formatted."""

    def encode(self, *_arguments: Any, **_more: Any) -> bytes:
        raise ValueError

    split = lower = __format__ = encode  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("error", "status", "data"),
    [
        (Speechless(), Status.INVALID, b"the model refused the input"),
        (InvalidInput(Speechless()), Status.INVALID, b"the model refused the input"),
        (InvalidInput(Garbled("words")), Status.INVALID, b"words"),
        (InvalidInput({"a": 1}), Status.INVALID, b"{'a': 1}"),
        (RuntimeError(Speechless()), Status.MODEL_FAILED, b"model 'm' raised RuntimeError"),
        (RuntimeError(Garbled("a")), Status.MODEL_FAILED, b"model 'm' raised RuntimeError"),
        (MemoryError(Speechless()), Status.MODEL_FAILED, b"model 'm' ran out of memory"),
        (SystemExit(3), Status.MODEL_FAILED, b"model 'm' raised SystemExit"),
        (CancelledError(), Status.MODEL_FAILED, b"model 'm' raised CancelledError"),
        (KeyboardInterrupt(), Status.MODEL_FAILED, b"model 'm' raised KeyboardInterrupt"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("count", [1, 3])
def test_any_raised_error_is_one_requests_failure(
    error: BaseException, status: Status, data: bytes, count: int
) -> None:
    def predict(x: Any) -> Any:
        if (x[:, 0] == 0).any():
            raise error
        return x

    harness = Harness(predict, [X], [Y])
    first, *others = harness.run(*(harness.send_tensor([[i, 0]]) for i in range(count)))
    assert first.answer.status is status
    assert first.data.startswith(data)
    assert {reply.answer.status for reply in others} <= {Status.OK}


def test_a_device_that_is_lost_ends_the_worker() -> None:
    def predict(x: Any) -> Any:
        raise RestartWorker("gone")

    harness = Harness(predict, [X], [Y])
    with pytest.raises(RestartWorker):
        harness.run(harness.send_tensor([[1, 0]]))
