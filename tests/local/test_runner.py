"""One batch: everybody's own answer, a bad request that fails alone, and payloads that lie."""

import json
import math
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.runtimes.model import DeviceLost, InvalidInput, Model
from ringbatch.engine.worker.bisect import PROBES
from ringbatch.engine.worker.runner import Runner
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_port import BatchMark, EnginePort
from ringbatch.shm.layout import WORD
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

X = Tensor("x", "FP32", [2])
Y = Tensor("y", "FP32", [2])
OPEN = Tensor("x", "FP32", [-1])
TEXT = Tensor("x", "BYTES", [])
TWO = [Y, Tensor("z", "FP32", [2])]
MARK = BatchMark(batch=77, rows=9, reason=Reason.FULL, dispatched_ns=5)
BEGAN_NS = 6


class Harness:
    """A runner with a model of the test's, and two lanes of clients."""

    def __init__(
        self,
        predict: Callable[..., Any],
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        *,
        batched: bool = True,
    ) -> None:
        self.calls: list[int] = []
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.segment = local_segment(spec(0, inputs, outputs), lanes=2)
        self.clients = [Client(self.segment, lane) for lane in range(2)]
        self.wakes: list[int] = []
        self.port = EnginePort(self.segment, 0, self.wakes.append)
        layout = self.segment.layout
        self.submitted = [
            Consumer(self.segment.words, layout.submission_ring(lane), layout.slots)
            for lane in range(2)
        ]

        def counting(*arguments: Any) -> Any:
            self.calls.append(len(arguments[0]))
            return predict(*arguments)

        model = Model(self.inputs, self.outputs, lambda: None, counting)
        self.runner = Runner(model, "m", self.port, lambda: 123, batched=batched)

    def send(self, payload: bytes, rows: int = 1, lane: int = 0, **more: Any) -> int:
        """Publish; the reference."""
        self.clients[lane].send(payload, rows, **more)
        (ref,) = self.submitted[lane].take()
        return ref

    def send_tensor(self, *values: Any, rows: int = 1, lane: int = 0, **more: Any) -> int:
        payload, key_bytes = pack(self.inputs, values)
        return self.send(payload, rows, lane, key_bytes=key_bytes, **more)

    def send_json(self, text: str, rows: int = 1, lane: int = 0, **more: Any) -> int:
        return self.send(text.encode(), rows, lane, **more)

    def spoil(self, ref: int, field: int, value: int) -> None:
        """What a hostile frontend may do to its slot at any time."""
        start = self.segment.layout.slot(ref & SLOT_MASK)
        self.segment.words[start + field] = value

    def poke(self, ref: int, offset: int, word: int) -> None:
        """What it may do to its payload."""
        first = self.segment.layout.slot(ref & SLOT_MASK)
        position = self.segment.words[first + SlotWords.REQUEST_OFFSET] + offset
        self.segment.memory[position : position + WORD] = word.to_bytes(WORD, "little")

    def run(self, *references: int) -> list[Reply]:
        """Run the batch; the replies in the order of the references."""
        self.runner.run(list(references), MARK, BEGAN_NS)
        self.port.flush()
        slots = self.segment.layout.slots
        replies = [client.collect() for client in self.clients]
        found = [
            replies[(ref & SLOT_MASK) // slots].pop((ref & SLOT_MASK) % slots) for ref in references
        ]
        assert replies == [{}, {}], "nobody else got an answer"
        return found

    def value(self, reply: Reply, rows: int = 1) -> Any:
        assert reply.answer.status is Status.OK, reply.data
        if not self.outputs:
            return json.loads(reply.data)
        return unpack(self.outputs, rows, reply.data)[0].tolist()


def identity(x: Any) -> Any:
    return x


def failed(reply: Reply, status: Status, words: str) -> bool:
    return reply.answer.status is status and words in reply.data.decode()


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 40])
def test_each_gets_its_own_rows_whatever_lane_it_is_in(count: int) -> None:
    harness = Harness(lambda x: x * 2, [X], [Y])
    refs = [harness.send_tensor([[i, -i]], lane=i % 2) for i in range(count)]
    replies = harness.run(*refs)
    assert [harness.value(r) for r in replies] == [[[2.0 * i, -2.0 * i]] for i in range(count)]
    assert harness.calls == [count]


def test_an_answer_says_what_the_batch_was() -> None:
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
def test_what_it_returns_has_the_shape_of_one_instance(returned: Any) -> None:
    harness = Harness(lambda x: returned, [X], [Y], batched=False)
    (reply,) = harness.run(harness.send_tensor([[1, 2]]))
    assert failed(reply, Status.MODEL_FAILED, f"has shape {list(np.shape(returned))}, declared is")


def test_without_declared_inputs_it_gets_and_gives_one_value() -> None:
    harness = Harness(lambda text: {"was": text}, batched=False)
    (reply,) = harness.run(harness.send_json('["ab"]'))
    assert harness.value(reply) == [{"was": "ab"}]


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
TOLD_BY_ROW: dict[str, tuple[Tensor, Callable[[Any], Any]]] = {
    "beyond": (Tensor("y", "INT32", []), lambda x: np.where(x[:, 0] == BAD, 2**31, 1)),
    "nothing": (TEXT, lambda x: [None if row[0] == BAD else "text" for row in x]),
    "half-a-pair": (TEXT, lambda x: ["\ud800" if row[0] == BAD else "text" for row in x]),
    "masked": (Tensor("y", "FP32", []), lambda x: np.ma.masked_equal(x[:, 0], BAD)),
}
TOLD_TOGETHER: dict[str, tuple[Tensor | list[Tensor], Callable[[Any], Any]]] = {
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
@pytest.mark.parametrize(("output", "predict"), TOLD_BY_ROW.values(), ids=TOLD_BY_ROW.keys())
def test_a_value_that_cannot_be_told_fails_its_own_request_in_the_same_run(
    output: Tensor, predict: Callable[[Any], Any], count: int
) -> None:
    harness = Harness(predict, [X], [output])
    replies = harness.run(*(harness.send_tensor([[i, 0]], lane=i % 2) for i in range(count)))
    assert failed(replies.pop(BAD), Status.MODEL_FAILED, f"output '{output.name}' holds")
    assert {reply.answer.status for reply in replies} == {Status.OK}
    assert harness.calls == [count]
    assert harness.runner.failed


@pytest.mark.parametrize("count", [17, FEW + 9])
@pytest.mark.parametrize(("outputs", "predict"), TOLD_TOGETHER.values(), ids=TOLD_TOGETHER.keys())
def test_what_is_wrong_as_a_whole_because_of_one_input_fails_that_one_alone(
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
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise KeyError("no words")

    __repr__ = __str__


class Garbled(str):
    """A text that is of no use."""

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
def test_whatever_is_raised_is_one_requests_failure(
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
        raise DeviceLost("gone")

    harness = Harness(predict, [X], [Y])
    with pytest.raises(DeviceLost):
        harness.run(harness.send_tensor([[1, 0]]))


LIES: dict[str, tuple[Tensor, Callable[[Harness, int], None]]] = {
    "rows-beyond-the-payload": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 3)),
    "rows-enormous": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 2**64 - 1)),
    "rows-zero": (X, lambda s, ref: s.spoil(ref, SlotWords.ROWS, 0)),
    "no-such-model": (X, lambda s, ref: s.spoil(ref, SlotWords.MODEL, 1)),
    "payload-too-short": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_BYTES, 4)),
    "payload-beyond-the-lane": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_BYTES, 1 << 40)),
    "payload-in-another-lane": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, s.segment.layout.lane_payload(0)),
    ),
    "payload-outside-the-segment": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, 1 << 50),
    ),
    "payload-end-overflows": (X, lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, 2**64 - 8)),
    "payload-misaligned": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.REQUEST_OFFSET, s.segment.layout.lane_payload(1) + 8),
    ),
    "result-in-another-lane": (
        X,
        lambda s, ref: s.spoil(ref, SlotWords.RESULT_OFFSET, s.segment.layout.lane_payload(0)),
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
    "a-lone-number": (lambda xs: np.array(3), "returned a int, not a list"),
    "a-generator": (lambda xs: (x for x in xs), "returned a generator, not a list"),
}


@pytest.mark.parametrize(("predict", "words"), JSON_WRONG.values(), ids=JSON_WRONG.keys())
def test_a_list_that_is_always_wrong_is_told_in_words(
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
    "not-a-number": (lambda: math.nan, "Out of range float values"),
    "infinity": (lambda: np.float32("inf"), "Out of range float values"),
    "no-json-value": (lambda: object(), "object is no JSON value"),
    "bytes": (lambda: b"x", "bytes is no JSON value"),
    "a-key-that-is-no-text": (lambda: {(1, 2): 3}, "keys must be str"),
    "circular": (circular, "Circular reference"),
    "very-deep": (deep, "recursion"),
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
def test_a_text_that_is_not_what_its_header_says_is_corrupt_and_harms_nobody_else(
    text: str,
) -> None:
    harness = Harness(identity)
    good = [harness.send_json(f"[{i}]") for i in range(2)]
    liar = harness.send(text.encode(errors="surrogateescape"), lane=1)
    first, corrupt, second = harness.run(good[0], liar, good[1])
    assert corrupt.answer.status is Status.CORRUPT
    assert (first.data, second.data) == (b"[0]", b"[1]")


def test_a_json_result_without_room_says_how_much_it_takes() -> None:
    harness = Harness(lambda xs: ["x" * 100 if x else 0 for x in xs])
    refs = [harness.send_json("[1]", result_bytes=50), harness.send_json("[0]", result_bytes=50)]
    large, small = harness.run(*refs)
    assert (large.answer.status, large.answer.size) == (Status.RESULT_TOO_LARGE, 104)
    assert small.data == b"[0]"


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
)
def test_whatever_the_batch_everyone_but_the_bad_gets_its_own(
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
    for number, (reply, (rows, _)) in enumerate(zip(replies, requests, strict=True)):
        if number in bad:
            assert reply.answer.status is Status.MODEL_FAILED
        else:
            assert harness.value(reply, rows) == [[number + 0.5, r + 0.5] for r in range(rows)]
