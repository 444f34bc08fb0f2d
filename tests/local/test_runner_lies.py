"""Corrupt payloads, which differ from their headers: they harm no other request."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runner_harness import TEXT, Harness, X, Y, identity

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

OPEN = Tensor("x", "FP32", [-1])
LIES: dict[str, tuple[Tensor, Callable[[Harness, int], None]]] = {
    "rows-beyond-the-payload": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 3)),
    "rows-enormous": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 2**64 - 1)),
    "rows-zero": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 0)),
    "no-such-model": (X, lambda s, ref: s.spoil(ref, SlotWords.MODEL, 1)),
    "payload-too-short": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_BYTES, 4)),
    "payload-beyond-the-lane": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_BYTES, 1 << 40)),
    "payload-in-another-lane": (
        X,
        lambda s, ref: s.spoil(
            ref, SlotWords.REQUEST_OFFSET, s.segment.layout.lane_payload_byte(0)
        ),
    ),
    "payload-outside-the-segment": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, 1 << 50),
    ),
    "payload-end-overflows": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, 2**64 - 8)),
    "payload-misaligned": (
        X,
        lambda s, ref: s.spoil(
            ref, SlotWords.REQUEST_OFFSET, s.segment.layout.lane_payload_byte(1) + 8
        ),
    ),
    "result-in-another-lane": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.RESULT_OFFSET, s.segment.layout.lane_payload_byte(0)),
    ),
    "result-room-beyond-the-lane": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.RESULT_CAPACITY, 1 << 40),
    ),
    "key-longer-than-the-payload": (X, lambda s, ref: s.spoil(ref, SlotWords.KEY_BYTES, 2048)),
    "prefix-beyond-the-payload": (OPEN, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_BYTES, 7)),
    "dimension-beyond-the-payload": (OPEN, lambda s, ref: s.poke(ref, 0, 1 << 30)),
    "dimension-overflows": (OPEN, lambda s, ref: s.poke(ref, 0, 2**64 - 1)),
    "texts-shorter-than-said": (TEXT, lambda s, ref: s.poke(ref, 64, 2**32 - 1)),
    "texts-longer-than-the-payload": (TEXT, lambda s, ref: s.poke(ref, 0, 1 << 40)),
    "texts-without-their-length": (TEXT, lambda s, ref: s.poke(ref, 0, 2)),
    "texts-of-no-bytes": (TEXT, lambda s, ref: s.poke(ref, 0, 0)),
}


def sample(tensor: Tensor, number: int) -> Any:
    return [f"text {number}".encode()] if tensor is TEXT else [[number, number]]


@pytest.mark.parametrize("count", [2, 12, FEW + 2])
@pytest.mark.parametrize(("tensor", "lie"), LIES.values(), ids=LIES.keys())
def test_a_payload_that_lies_is_corrupt_and_harms_nobody_else(
    tensor: Tensor, lie: Callable[[Harness, int], None], count: int
) -> None:
    harness = Harness(identity, [tensor], [tensor])
    others = [harness.send_tensor(sample(tensor, i)) for i in range(count - 1)]
    liar = harness.send_tensor(sample(tensor, -1), lane=1)
    lie(harness, liar)
    replies = harness.run(*others[:1], liar, *others[1:])
    assert replies.pop(1).answer.status is Status.CORRUPT
    assert [harness.value(reply) for reply in replies] == [
        [x.decode() if isinstance(x, bytes) else x for x in sample(tensor, i)]
        if tensor is not TEXT
        else sample(tensor, i)
        for i in range(count - 1)
    ]


@pytest.mark.parametrize("count", [1, 7, FEW + 1])
@pytest.mark.parametrize(("tensor", "lie"), LIES.values(), ids=LIES.keys())
def test_a_batch_of_nothing_but_lies_is_corrupt_and_runs_nothing(
    tensor: Tensor, lie: Callable[[Harness, int], None], count: int
) -> None:
    harness = Harness(identity, [tensor], [tensor])
    liars = [harness.send_tensor(sample(tensor, i), lane=1) for i in range(count)]
    for liar in liars:
        lie(harness, liar)
    assert {reply.answer.status for reply in harness.run(*liars)} == {Status.CORRUPT}
    assert harness.calls == []


EMPTY_LIES = {
    "open-beside-a-zero": (Tensor("x", "FP32", [0, -1]), [[[]]], 0, 2**63),
    "open-texts-beside-a-zero": (Tensor("x", "BYTES", [0, -1]), [[[]]], 0, 2**64 - 1),
    "open-texts-of-many": (Tensor("x", "BYTES", [-1]), [[]], 0, 1 << 50),
}


@pytest.mark.parametrize(
    ("tensor", "values", "offset", "size"), EMPTY_LIES.values(), ids=EMPTY_LIES.keys()
)
def test_a_size_that_no_bytes_bound_is_corrupt_and_harms_nobody_else(
    tensor: Tensor, values: Any, offset: int, size: int
) -> None:
    values = np.empty((1, *(0 for _ in tensor.shape)), object if tensor.datatype.size == 0 else "f")
    harness = Harness(lambda x: np.zeros((len(x), 2)), [tensor], [Y])
    others = [harness.send_tensor(values) for _ in range(8)]
    liar = harness.send_tensor(values, lane=1)
    harness.poke(liar, offset, size)
    *replies, corrupt = harness.run(*others, liar)
    assert corrupt.answer.status is Status.CORRUPT
    assert [harness.value(reply) for reply in replies] == [[[0, 0]]] * 8


@pytest.mark.parametrize("rows", [2**63, 2**64 - 1])
def test_rows_that_no_bytes_bound_are_corrupt(rows: int) -> None:
    harness = Harness(lambda x: np.zeros((len(x), 2)), [Tensor("x", "FP32", [0])], [Y])
    good = [harness.send_tensor(np.empty((1, 0))) for _ in range(3)]
    liars = [harness.send_tensor(np.empty((1, 0)), lane=1) for _ in range(8)]
    for liar in liars:
        harness.spoil(liar, SlotWords.ROWS, rows)
    assert {reply.answer.status for reply in harness.run(*liars)} == {Status.CORRUPT}
    again = [harness.send_tensor(np.empty((1, 0)), lane=1) for _ in range(8)]
    for liar in again:
        harness.spoil(liar, SlotWords.ROWS, rows)
    *replies, last = harness.run(*good, *again)
    assert [harness.value(reply) for reply in replies[:3]] == [[[0, 0]]] * 3
    assert last.answer.status is Status.CORRUPT


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_shape_changed_after_collection_harms_nobody_else(place: int) -> None:
    """The collector has put it among requests of its old shape."""
    harness = Harness(lambda x: x.sum(axis=1), [OPEN], [Tensor("y", "FP32", [])])
    refs = [harness.send_tensor([[i, i, i]], lane=int(i == place)) for i in range(8)]
    harness.poke(refs[place], 0, 2)
    for number, reply in enumerate(harness.run(*refs)):
        assert harness.value(reply) == [2 * number if number == place else 3 * number]


JSON_LIES = {
    "no-json": "[1",
    "no-list": '{"a":1}',
    "other-count": "[1,2]",
    "empty": "",
    "no-utf-8": "\udcff",
    "very-deep": "[" * 100_000 + "]" * 100_000,
    "number-too-long": "[" + "9" * 5000 + "]",
}


@pytest.mark.parametrize("text", JSON_LIES.values(), ids=JSON_LIES.keys())
def test_a_text_that_contradicts_its_header_is_corrupt_and_harms_no_other(
    text: str,
) -> None:
    harness = Harness(identity)
    good = [harness.send_json(f"[{i}]") for i in range(2)]
    liar = harness.send(text.encode(errors="surrogateescape"), lane=1)
    first, corrupt, second = harness.run(good[0], liar, good[1])
    assert corrupt.answer.status is Status.CORRUPT
    assert (first.data, second.data) == (b"[0]", b"[1]")
