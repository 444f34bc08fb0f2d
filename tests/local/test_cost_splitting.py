"""Batches of models that say what an instance costs: cut by it, the cheapest first."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import Client, Reply, local_segment, spec

from ringbatch.engine.models.model import InvalidInput, Model, RestartWorker
from ringbatch.engine.models.request_context import Request as Asked
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.cost_splitting import CostSplitCodec
from ringbatch.engine.worker.request_context import RequestContextCodec
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status

MOST = 10


def cost(instance: Any) -> Any:
    if instance == "refuse":
        raise InvalidInput("no such thing")
    if instance == "raise":
        raise ZeroDivisionError
    if instance == "restart":
        raise RestartWorker
    return instance


class Harness:
    """A runner of a model whose instances are what they cost, and a client of it."""

    def __init__(self, *, asks: bool = False) -> None:
        self.runs: list[list[Any]] = []
        self.answered: list[int] = []
        self.segment = local_segment(spec(0))
        self.client = Client(self.segment)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self._submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)
        self._asks = asks
        self._replies: dict[int, Reply] = {}

        def predict(instances: list[Any], contexts: list[Asked] | None = None) -> list[Any]:
            assert (contexts is not None) == asks
            assert contexts is None or [one.id for one in contexts] == ["t"] * len(instances)
            self.runs.append(instances)
            self._replies |= self.client.collect()
            self.answered.append(len(self._replies))
            return [[value] for value in instances]

        codec = CostSplitCodec(self.segment.memory, cost, MOST, asks=asks)
        outer: Codec = RequestContextCodec(codec, self.engine_slots.wanted) if asks else codec
        model = Model((), (), lambda: None, predict, asks=asks, cost=cost)
        self.runner = Runner(
            RunnerSetup(model, "m", self.engine_slots, lambda: 0, codec=outer, plan=codec.plan)
        )

    def run(self, *requests: list[Any] | bytes) -> list[Reply]:
        references = []
        for values in requests:
            contexts: list[Any] = [{"id": "t"}] if self._asks else []
            rows = 1 if isinstance(values, bytes) else len(values)
            text = (
                values if isinstance(values, bytes) else json.dumps([*contexts, *values]).encode()
            )
            self.client.send(text, rows)
            references += self._submitted.take()
        mark = BatchMark(7, len(requests), Reason.FULL, 0)
        self.runner.run(references, mark, 0)
        self.engine_slots.flush()
        self._replies |= self.client.collect()
        found = [self._replies.pop(ref & SLOT_MASK) for ref in references]
        assert not self._replies
        return found


def test_a_batch_is_run_in_parts_the_cheapest_first() -> None:
    harness = Harness()
    replies = harness.run([8], [1], [50], [2, 3], [4])
    assert harness.runs == [[1, 4, 2, 3], [8], [50]]
    found = [json.loads(reply.data) for reply in replies]
    assert found == [[[8]], [[1]], [[50]], [[2], [3]], [[4]]]


def test_an_answered_client_hears_of_it_before_the_next_part_runs() -> None:
    harness = Harness()
    harness.run([9], [1], [20], [2])
    assert harness.answered == [0, 2, 3]


def test_a_cost_may_ask_for_another_process() -> None:
    with pytest.raises(RestartWorker):
        Harness().run([1], ["restart"])


def test_a_batch_that_fits_is_one_run() -> None:
    harness = Harness()
    harness.run([3], [0], [7.0])
    assert harness.runs == [[0, 3, 7.0]]


@pytest.mark.parametrize(
    ("instance", "status", "words"),
    [
        ("refuse", Status.INVALID, "no such thing"),
        ("raise", Status.MODEL_FAILED, "raised ZeroDivisionError"),
        (-1, Status.MODEL_FAILED, "cost returned -1, but it must be a number from 0 up"),
        ("much", Status.MODEL_FAILED, "cost returned 'much'"),
        (None, Status.MODEL_FAILED, "cost returned None"),
    ],
)
def test_an_invalid_cost_fails_its_request_alone(instance: Any, status: Status, words: str) -> None:
    harness = Harness()
    first, bad, last = harness.run([1], [instance], [2])
    assert (bad.answer.status, first.answer.status) == (status, Status.OK)
    assert words in bad.data.decode()
    assert last.answer.status is Status.OK
    assert harness.runs == [[1, 2]]


def test_an_unreadable_request_fails_alone() -> None:
    bad, good = Harness().run(b"[1", [3])
    assert (bad.answer.status, good.answer.status) == (Status.CORRUPT, Status.OK)


def test_a_model_that_takes_request_contexts_gets_them_in_every_part() -> None:
    harness = Harness(asks=True)
    harness.run([8], [5, 1], [7])
    assert harness.runs == [[5, 1], [7], [8]]


@given(st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=3), min_size=1, max_size=12))
def test_no_part_costs_more_unless_it_is_of_one_request(requests: list[list[int]]) -> None:
    harness = Harness()
    replies = harness.run(*requests)
    found = [json.loads(reply.data) for reply in replies]
    assert found == [[[value] for value in values] for values in requests]
    for run in harness.runs:
        assert sum(run) <= MOST or run in requests
