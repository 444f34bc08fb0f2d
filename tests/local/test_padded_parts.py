"""Answers in parts of a model whose inputs are padded, as one answer and for warm-up."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from segment_fixture import Array, Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.layout import PAGE
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor

MARK = BatchMark(batch=1, rows=1, reason=Reason.FULL, dispatched_ns=0)
IDS = Tensor("ids", "INT64", [-1])
TABLE = Tensor("table", "INT64", [2, -1])
OUTPUTS = (IDS, TABLE, Tensor("step", "INT64", []))
STEPS = 3


class Harness:
    """A runner whose model yields, with padded inputs."""

    def __init__(self, predict: Any, edges: tuple[int, ...], outputs: tuple[Tensor, ...]) -> None:
        model = Model((IDS, TABLE), outputs, lambda: None, predict, in_parts=True)
        self.model, shaped = padding(model, edges, {"ids": -1, "table": -1}, "")
        self.segment = local_segment(spec(0, (IDS, TABLE), outputs), lane_bytes=256 * PAGE)
        self.client = Client(self.segment)
        self.slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self.submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)
        codec = PaddedCodec(self.segment.memory, self.model, shaped)
        setup = RunnerSetup(self.model, "m", self.slots, lambda: 0, codec=codec, sizes=(4,))
        self.runner = PartsRunner(setup, pause=lambda _s: None)

    def send(self, ids: list[list[int]], table: list[list[list[int]]]) -> int:
        payload, key_bytes = pack((IDS, TABLE), [ids, table])
        self.client.send(payload, len(ids), key_bytes=key_bytes, result_bytes=4096)
        (ref,) = self.submitted.take()
        return ref

    def run(self, *references: int) -> list[Reply]:
        self.runner.run(list(references), MARK, 0)
        self.slots.flush()
        replies = self.client.collect()
        return [replies[ref & SLOT_MASK] for ref in references]


def steps(ids: Array, table: Array) -> Iterator[Any]:
    for number in range(1, STEPS + 1):
        yield ids * number, table * number, np.full(len(ids), number)


@pytest.mark.parametrize("edges", [(), (4, 8)])
def test_each_part_loses_its_padding_before_they_are_joined(edges: tuple[int, ...]) -> None:
    harness = Harness(steps, edges, OUTPUTS)
    sent = {
        harness.send([[1, 2, 3]], [[[1], [2]]]): ([[1, 2, 3]], [[[1], [2]]]),
        harness.send([[7], [8]], [[[1, 2, 3], [4, 5, 6]]] * 2): (
            [[7], [8]],
            [[[1, 2, 3], [4, 5, 6]]] * 2,
        ),
    }
    for reply, (ids, table) in zip(harness.run(*sent), sent.values(), strict=True):
        assert reply.answer.status is Status.OK, reply.data
        joined, last, step = unpack(OUTPUTS, len(ids), reply.data)
        assert joined.tolist() == [[i * n for n in range(1, STEPS + 1) for i in row] for row in ids]
        assert last.tolist() == (STEPS * np.array(table)).tolist()
        assert step.tolist() == [STEPS] * len(ids)


BYTE = Tensor("byte", "INT8", [-1])


def test_a_fault_in_a_part_fails_its_request_and_one_in_the_padding_nobody() -> None:
    def predict(ids: Array, _table: Array) -> Iterator[Any]:
        yield np.where(ids < 0, 1000, ids)
        yield ids * 0

    harness = Harness(predict, (), (BYTE,))
    table = [[[1], [2]]]
    good, bad, long = harness.run(
        harness.send([[1]], table), harness.send([[2, 300]], table), harness.send([[3] * 9], table)
    )
    assert good.answer.status is Status.OK
    assert unpack((BYTE,), 1, good.data)[0].tolist() == [[1, 0]]
    assert (bad.answer.status, b"beyond the declared INT8" in bad.data) == (
        Status.MODEL_FAILED,
        True,
    )
    assert unpack((BYTE,), 1, long.data)[0].tolist() == [[3] * 9 + [0] * 9]


def test_made_up_rows_are_joined_likewise() -> None:
    harness = Harness(steps, (), OUTPUTS)
    values = [[np.ones((1, size), np.int64), np.ones((1, 2, size), np.int64)] for size in (3, 1)]
    found = harness.runner.answers(values, 2)
    assert [row[0].tolist() for row in found] == [[1, 1, 1, 2, 2, 2, 3, 3, 3], [1, 2, 3]]
    assert [row[1].shape for row in found] == [(2, 3), (2, 1)]
