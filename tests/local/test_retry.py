"""Retries of batches: their cost, the order of answers, and lessons of lacking memory."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from segment_fixture import Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.models.model import InvalidInput, Model
from ringbatch.engine.worker import retry
from ringbatch.engine.worker.bisect import PROBES
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

X = Tensor("x", "FP32", [2])
FAR_NS = 1 << 62


class Harness:
    """A runner with a model of the test's, a client, and a clock that every run moves."""

    def __init__(
        self,
        predict: Callable[[Any], Any],
        *,
        finite: bool = False,
        output: Tensor | None = None,
        run_ns: int = 0,
    ) -> None:
        self.now_ns = 0
        self.calls: list[int] = []
        self.flushed: list[int] = []
        self.outputs = (output or Tensor("y", "FP32", [2]),)
        self.segment = local_segment(spec(0, [X], self.outputs))
        self.client = Client(self.segment)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self._submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)

        def counting(x: Any) -> Any:
            self.calls.append(len(x))
            self.now_ns += run_ns
            return predict(x)

        model = Model((X,), self.outputs, lambda: None, counting)
        codec = FiniteCodec(self.segment.memory, model) if finite else None
        self.runner = Runner(
            RunnerSetup(
                model,
                "m",
                self.engine_slots,
                lambda: self.now_ns,
                codec=codec,
                run_again=self.flushed.append,
            )
        )

    def send(self, first: float, rows: int = 1, deadline_ns: int = FAR_NS) -> int:
        payload, _ = pack([X], [[[first, row] for row in range(rows)]])
        self.client.send(payload, rows, deadline_ns=deadline_ns)
        (ref,) = self._submitted.take()
        return ref

    def run(self, *references: int, rows: int = 0) -> list[Reply | None]:
        """Run the batch; the replies in order, None where a request was cancelled."""
        mark = BatchMark(7, rows or len(references), Reason.FULL, 0)
        self.runner.run(list(references), mark, 0)
        self.engine_slots.flush()
        replies = self.client.collect()
        assert all(state.value == "free" for _, state in self.engine_slots.published())
        return [replies.pop(ref & SLOT_MASK, None) for ref in references]

    def value(self, reply: Reply | None, rows: int = 1) -> Any:
        assert reply is not None
        assert reply.answer.status is Status.OK, reply.data
        return unpack(self.outputs, rows, reply.data)[0].tolist()


def statuses(replies: list[Reply | None]) -> list[Status | None]:
    return [None if reply is None else reply.answer.status for reply in replies]


def failing_for(*bad: int, error: type[Exception] = RuntimeError) -> Callable[[Any], Any]:
    def predict(x: Any) -> Any:
        if np.isin(x[:, 0], bad).any():
            raise error("asked to")
        return x

    return predict


@pytest.mark.parametrize("count", [9, 32, 64])
def test_a_model_that_always_raises_costs_a_few_runs_and_everybody_hears_of_it(count: int) -> None:
    harness = Harness(failing_for(*range(count)))
    replies = harness.run(*(harness.send(n) for n in range(count)))
    assert statuses(replies) == [Status.MODEL_FAILED] * count
    assert all(b"raised RuntimeError" in reply.data for reply in replies if reply)
    assert len(harness.calls) == 3 + PROBES


def test_an_error_about_one_input_goes_to_that_client_only() -> None:
    def predict(x: Any) -> Any:
        raise InvalidInput(f"not {x[:, 0].tolist()}")

    harness = Harness(predict)
    replies = harness.run(*(harness.send(n) for n in range(40)))
    assert statuses(replies) == [Status.INVALID] * 40
    assert [reply.data for reply in replies if reply] == [b"not [%d.0]" % n for n in range(40)]


def test_every_run_but_the_first_is_reported_so_that_the_worker_does_not_seem_hung() -> None:
    harness = Harness(failing_for(3))
    harness.run(*(harness.send(n) for n in range(8)))
    assert len(harness.flushed) == len(harness.calls) - 1 > 2
    assert set(harness.flushed) == {7}


def test_an_answered_client_need_not_wait_for_the_runs_to_come() -> None:
    harness = Harness(failing_for(31))
    refs = [harness.send(n) for n in range(32)]
    collected: list[int] = []
    before = harness.runner._predict

    def looking(x: Any) -> Any:
        collected.append(len(harness.client.lane.collect()))
        return before(x)

    harness.runner._predict = looking
    harness.runner.run(refs, BatchMark(7, 32, Reason.FULL, 0), 0)
    assert collected[:3] == [0, 0, 16]


def test_an_expired_request_is_not_run_again_and_the_others_are() -> None:
    harness = Harness(failing_for(0), run_ns=100)
    refs = [harness.send(n, deadline_ns=150 if n in (2, 5) else FAR_NS) for n in range(8)]
    replies = harness.run(*refs)
    # The whole takes until 100, the first half until 200.
    assert statuses(replies) == [
        Status.MODEL_FAILED,
        Status.OK,
        Status.EXPIRED,
        Status.OK,
        Status.OK,
        Status.EXPIRED,
        Status.OK,
        Status.OK,
    ]


def test_a_client_that_left_meanwhile_is_not_run_again() -> None:
    harness = Harness(failing_for(0))
    refs = [harness.send(n) for n in range(2)]
    before = harness.runner._predict

    def leaving(x: Any) -> Any:
        harness.client.lane.cancel(refs[1] & SLOT_MASK)
        return before(x)

    harness.runner._predict = leaving
    assert statuses(harness.run(*refs)) == [Status.MODEL_FAILED, None]
    assert harness.calls == [2, 1]


def short_of_memory(limit: int) -> Callable[[Any], Any]:
    def predict(x: Any) -> Any:
        if len(x) > limit:
            raise MemoryError
        return x

    return predict


@pytest.fixture
def nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the garbage collection after a failed run.

    It would go through everything that other tests of the process have left.
    """
    monkeypatch.setattr(retry, "give_back", lambda: None)


@pytest.mark.usefixtures("nothing_to_give_back")
def test_a_batch_without_memory_is_halved_and_its_size_is_learned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(short_of_memory(5))
    replies = harness.run(*(harness.send(n) for n in range(16)))
    assert [harness.value(reply) for reply in replies] == [[[n, 0]] for n in range(16)]
    assert harness.calls == [16, 8, 8, *[1] * PROBES, 4, 4]
    assert "ran out of memory with 8 instances" in caplog.text
    harness.calls.clear()
    replies = harness.run(*(harness.send(n) for n in range(16)))
    assert [harness.value(reply) for reply in replies] == [[[n, 0]] for n in range(16)]
    assert harness.calls == [4, 4, 4, 4]
    assert not harness.runner.failed


@pytest.mark.usefixtures("nothing_to_give_back")
@pytest.mark.parametrize("count", [FEW - 8, FEW + 8], ids=["each", "uniform"])
def test_a_batch_without_memory_for_its_inputs_is_halved_too(count: int) -> None:
    harness = Harness(lambda x: x)
    gatherer = harness.runner._codec._gatherer  # type: ignore[attr-defined]
    gather, gather_uniform = gatherer.gather, gatherer.gather_uniform

    def short(requests: Any, *more: Any) -> Any:
        if len(requests) > 5:
            raise MemoryError
        return gather(requests, *more)

    def short_uniform(uniform: Any) -> Any:
        if len(uniform.references) > 5:
            raise MemoryError
        return gather_uniform(uniform)

    gatherer.gather, gatherer.gather_uniform = short, short_uniform
    replies = harness.run(*(harness.send(n) for n in range(count)))
    assert [harness.value(reply) for reply in replies] == [[[n, 0]] for n in range(count)]
    assert max(harness.calls) <= 5


@pytest.mark.usefixtures("nothing_to_give_back")
def test_one_request_for_which_no_memory_is_enough_fails_alone_and_teaches_nothing() -> None:
    harness = Harness(failing_for(3, error=MemoryError))
    replies = harness.run(*(harness.send(n) for n in range(16)))
    assert statuses(replies) == [Status.OK] * 3 + [Status.MODEL_FAILED] + [Status.OK] * 12
    assert replies[3] is not None
    assert b"ran out of memory" in replies[3].data
    harness.calls.clear()
    harness.run(*(harness.send(n + 100) for n in range(16)))
    assert harness.calls == [16]


@pytest.mark.usefixtures("nothing_to_give_back")
def test_a_model_that_never_has_memory_costs_a_few_runs() -> None:
    harness = Harness(short_of_memory(0))
    replies = harness.run(*(harness.send(n) for n in range(64)))
    assert statuses(replies) == [Status.MODEL_FAILED] * 64
    assert len(harness.calls) == 3 + PROBES


def test_a_request_of_more_rows_than_fit_is_still_tried_by_itself() -> None:
    harness = Harness(short_of_memory(4))
    harness.run(*(harness.send(n) for n in range(8)))
    harness.calls.clear()
    first, large, last = harness.run(
        harness.send(1), harness.send(2, rows=6), harness.send(3), rows=8
    )
    assert harness.calls == [1, 6, 1]
    assert statuses([first, large, last]) == [Status.OK, Status.MODEL_FAILED, Status.OK]


def test_memory_of_a_failed_run_is_free_before_the_next() -> None:
    alive: list[int] = []
    kept: list[Any] = []

    class Weight:
        def __init__(self) -> None:
            alive.append(1)

        def __del__(self) -> None:
            alive.pop()

    def predict(x: Any) -> Any:
        kept.append(len(alive))
        weight = Weight()
        if len(x) > 1:
            raise MemoryError(weight and "no room")
        return x

    harness = Harness(predict)
    harness.run(*(harness.send(n) for n in range(8)))
    assert set(kept) == {0}


NOT_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("count", [3, FEW + 3])
@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_where_they_are_refused_answers_that_are_no_numbers_fail_alone(
    datatype: str, value: float, count: int
) -> None:
    harness = Harness(
        lambda x: np.where(x[:, :1] == 1, value, x), finite=True, output=Tensor("y", datatype, [2])
    )
    replies = harness.run(*(harness.send(n) for n in range(count)))
    bad = replies.pop(1)
    assert bad is not None
    assert bad.answer.status is Status.MODEL_FAILED
    assert b"output 'y' holds NaN or infinity" in bad.data
    others = [n for n in range(count) if n != 1]
    assert [harness.value(reply) for reply in replies] == [[[n, 0]] for n in others]


def test_of_a_request_of_several_rows_one_bad_row_is_enough_and_none_of_its_neighbours() -> None:
    harness = Harness(lambda x: np.where(x[:, 1:] == 2, np.nan, x), finite=True)
    refs = [harness.send(1, rows=2), harness.send(2, rows=3), harness.send(3, rows=1)]
    replies = harness.run(*refs, rows=6)
    assert statuses(replies) == [Status.OK, Status.MODEL_FAILED, Status.OK]
    assert harness.value(replies[2]) == [[3, 0]]


def test_where_they_are_served_they_are_served() -> None:
    harness = Harness(lambda x: x * np.nan)
    for reply in harness.run(*(harness.send(n) for n in range(8))):
        assert np.isnan(harness.value(reply)).all()


def test_whole_numbers_are_always_finite() -> None:
    harness = Harness(lambda x: x.astype("int64"), finite=True, output=Tensor("y", "INT64", [2]))
    replies = harness.run(*(harness.send(n) for n in range(8)))
    assert statuses(replies) == [Status.OK] * 8


def test_each_answer_says_when_the_model_ran_and_how_often_until_then() -> None:
    harness = Harness(failing_for(10), run_ns=100)
    harness.now_ns = 50
    refs = [harness.send(n) for n in (10, 1, 2, 3)]
    bad, last, *first = harness.run(*refs)
    # Whole, both halves, and the two of the first alone, in the order that the search takes.
    for reply, attempts in ((first[0], 3), (first[1], 3), (bad, 4), (last, 5)):
        assert reply is not None
        answer = reply.answer
        assert (answer.attempts, answer.ran_ns) == (attempts, 50 + attempts * 100)
        assert (answer.gathered_ns, answer.finished_ns) == (50, answer.ran_ns)


def test_the_run_in_which_a_worker_died_counts() -> None:
    harness = Harness(lambda x: x, run_ns=100)
    harness.now_ns = 50
    mark = BatchMark(8, 1, Reason.RETRY, 20)
    harness.runner.run([harness.send(1)], mark, 30)
    harness.engine_slots.flush()
    ((_, reply),) = harness.client.collect().items()
    answer = reply.answer
    assert (answer.dispatched_ns, answer.began_ns, answer.gathered_ns) == (20, 30, 50)
    assert (answer.ran_ns, answer.finished_ns, answer.attempts) == (150, 150, 2)


def test_a_batch_says_nothing_of_the_runs_of_the_one_before() -> None:
    harness = Harness(lambda x: x, run_ns=100)
    for started_ns in (50, 250):
        harness.now_ns = started_ns
        (reply,) = harness.run(harness.send(1))
        assert reply is not None
        answer = reply.answer
        assert (answer.gathered_ns, answer.ran_ns) == (started_ns, started_ns + 100)
        assert answer.attempts == 1
