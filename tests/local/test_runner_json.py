"""A batch of JSON instances: they pass unharmed, and a prediction that is no JSON fails alone."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runner_harness import Harness, failed, identity

from ringbatch.shm.slot import Status


def test_json_values_pass_unharmed() -> None:
    text = '[{"z":123456789012345678901234567890,"a":6.0,"ä":"\\u2028\\"€"},[],null,1e-7,true]'
    harness = Harness(identity)
    (reply,) = harness.run(harness.send_json(text, rows=5))
    assert reply.answer.status is Status.OK
    assert reply.data.decode() == text.replace("\\u2028", "\u2028").replace("1e-7", "1e-07")


def test_half_a_surrogate_pair_passes_as_the_escape_it_came_as() -> None:
    harness = Harness(identity)
    (reply,) = harness.run(harness.send_json('["\\ud83d"]'))
    assert reply.data == b'["\\ud83d"]'


def test_json_instances_of_all_requests_come_as_one_list() -> None:
    harness = Harness(lambda instances: [instances.index(i) for i in instances])
    refs = [harness.send_json("[5,6]", rows=2), harness.send_json('["a"]', lane=1)]
    assert [reply.data for reply in harness.run(*refs)] == [b"[0,1]", b"[2]"]
    assert harness.calls == [3]


NUMPY = {
    "array": (lambda xs: np.arange(len(xs)), b"[0]", b"[1]"),
    "matrix": (lambda xs: np.eye(len(xs)), b"[[1.0,0.0]]", b"[[0.0,1.0]]"),
    "array-in-a-list": (lambda xs: [np.array([1, 2])] * 2, b"[[1,2]]", b"[[1,2]]"),
    "scalars": (lambda xs: [np.int64(3), np.float32(0.5)], b"[3]", b"[0.5]"),
    "scalars-in-a-dict": (lambda xs: [{"a": np.bool_(True)}] * 2, b'[{"a":true}]', b'[{"a":true}]'),
    "tuple": (lambda xs: (1.0, 2), b"[1.0]", b"[2]"),
    "long-doubles": (lambda xs: np.array([0.5, 2], np.longdouble), b"[0.5]", b"[2.0]"),
    "long-scalars": (lambda xs: [np.longdouble(0.5)] * 2, b"[0.5]", b"[0.5]"),
}


@pytest.mark.parametrize(("predict", "first", "second"), NUMPY.values(), ids=NUMPY.keys())
def test_numpy_values_in_a_json_result_are_written_as_json(
    predict: Callable[[Any], Any], first: bytes, second: bytes
) -> None:
    harness = Harness(predict)
    replies = harness.run(harness.send_json("[1]"), harness.send_json("[2]"))
    assert [reply.data for reply in replies] == [first, second]


JSON_WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "too-few": (lambda xs: xs[1:], "returned 0 predictions for 1 instances"),
    "too-many": (lambda xs: [*xs, 1], "returned 2 predictions for 1 instances"),
    "no-list": (lambda xs: {"a": 1}, "returned a dict, not a list"),
    "a-text": (lambda xs: "abc", "returned a str, not a list"),
    "a-lone-number": (lambda xs: np.array(3), "returned an int, not a list"),
    "times": (lambda xs: np.array([1], "M8[ns]"), "JSON: numpy's datetime64[ns] is no JSON value"),
    "a-generator": (lambda xs: (x for x in xs), "returned a generator, not a list"),
}


@pytest.mark.parametrize(("predict", "words"), JSON_WRONG.values(), ids=JSON_WRONG.keys())
def test_a_list_that_is_always_wrong_is_described(
    predict: Callable[[Any], Any], words: str
) -> None:
    harness = Harness(predict)
    replies = harness.run(*(harness.send_json("[1]") for _ in range(3)))
    status = Status.WRONG_COUNT if "predictions for" in words else Status.MODEL_FAILED
    assert all(failed(reply, status, words) for reply in replies)
    assert harness.calls == [3, 1, 2, 1, 1]


def circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


UNWRITABLE = {
    "not-a-number": (lambda: math.nan, "it holds NaN or Infinity"),
    "infinity": (lambda: np.float32("inf"), "it holds NaN or Infinity"),
    "no-json-value": (lambda: object(), "object is no JSON value"),
    "bytes": (lambda: b"x", "bytes is no JSON value"),
    "a-key-that-is-no-text": (lambda: {(1, 2): 3}, "keys must be str"),
    "nanoseconds": (lambda: np.datetime64(1, "ns"), "numpy's datetime64[ns] is no JSON value"),
    "days": (lambda: [np.array([1], "m8[D]")], "numpy's timedelta64[D] is no JSON value"),
    "a-long-complex-number": (lambda: np.clongdouble(1), "is no JSON value"),
    "circular": (circular, "Circular reference"),
    "very-deep": (deep, "it is nested too deep"),
}


@pytest.mark.parametrize(("make", "words"), UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_a_prediction_that_is_no_json_fails_alone_and_nothing_runs_again(
    make: Callable[[], Any], words: str
) -> None:
    harness = Harness(lambda xs: [make() if x == 2 else x for x in xs])
    replies = harness.run(*(harness.send_json(f"[{i}]") for i in range(5)))
    bad = replies.pop(2)
    assert failed(bad, Status.MODEL_FAILED, "model 'm': a prediction cannot be written as JSON")
    assert words in bad.data.decode()
    assert [harness.value(reply) for reply in replies] == [[0], [1], [3], [4]]
    assert harness.calls == [5]
    assert harness.runner.failed


def test_a_json_result_without_room_says_how_much_it_takes() -> None:
    harness = Harness(lambda xs: ["x" * 100 if x else 0 for x in xs])
    refs = [harness.send_json("[1]", result_bytes=50), harness.send_json("[0]", result_bytes=50)]
    large, small = harness.run(*refs)
    assert (large.answer.status, large.answer.size) == (Status.RESULT_TOO_LARGE, 104)
    assert small.data == b"[0]"
