"""Batches that are padded on their way to the model, and cut on their way back."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import Array, Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.ipc.shaping import Unfit
from ringbatch.engine.models.model import InvalidInput, Model
from ringbatch.engine.worker import padding as padding_module
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.layout import PAGE
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW

MARK = BatchMark(batch=1, rows=1, reason=Reason.FULL, dispatched_ns=0)
BEGAN_NS = 0
IDS = Tensor("ids", "INT64", [-1])
MASK = Tensor("mask", "BOOL", [-1])
COUNTS = Tensor("counts", "INT64", [])
WORDS = Tensor("words", "BYTES", [-1])
SUM = Tensor("sum", "INT64", [])
TOKENS = Tensor("tokens", "FP32", [-1, 2])
X = Tensor("x", "FP32", [2])


class Harness:
    """A runner whose batches are padded, and a client of it."""

    def __init__(
        self,
        predict: Callable[..., Any],
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        *,
        sizes: tuple[int, ...] = (),
        edges: tuple[int, ...] | None = None,
        values: dict[str, float] | None = None,
        lengths_input: str = "",
        finite: bool = False,
    ) -> None:
        self.seen: list[list[Any]] = []

        def watched(*arguments: Any) -> Any:
            self.seen.append(list(arguments))
            return predict(*arguments)

        model = Model(tuple(inputs), tuple(outputs), lambda: None, watched)
        shaped = None
        if edges is not None:
            model, shaped = padding(model, edges, values or {}, lengths_input)
        self.inputs, self.outputs = model.inputs, model.outputs
        self.segment = local_segment(spec(0, self.inputs, self.outputs), lane_bytes=256 * PAGE)
        self.client = Client(self.segment)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self.submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)
        self.runner = Runner(
            RunnerSetup(
                model,
                "m",
                self.engine_slots,
                lambda: 0,
                sizes=sizes,
                codec=PaddedCodec(self.segment.memory, model, shaped, finite=finite)
                if shaped
                else None,
            )
        )

    def send(self, *values: Any, rows: int = 1, **more: Any) -> int:
        if self.inputs:
            payload, key_bytes = pack(self.inputs, values)
        else:
            (payload,), key_bytes = values, 0
        self.client.send(payload, rows, key_bytes=key_bytes, **{"result_bytes": 4096} | more)
        (ref,) = self.submitted.take()
        return ref

    def run(self, *references: int) -> list[Reply]:
        self.runner.run(list(references), MARK, BEGAN_NS)
        self.engine_slots.flush()
        replies = self.client.collect()
        assert len(replies) == len(references)
        return [replies[ref & SLOT_MASK] for ref in references]

    def shapes(self) -> list[list[tuple[int, ...]]]:
        """Return the shapes of the arguments of each run."""
        return [[array.shape for array in arguments] for arguments in self.seen]


def answer(harness: Harness, reply: Reply, rows: int = 1) -> list[Array]:
    assert reply.answer.status is Status.OK, reply.data
    return unpack(harness.outputs, rows, reply.data)


def total(ids: Any) -> Any:
    return ids.sum(axis=1)


def as_tokens(ids: Any, *_: Any) -> Any:
    return np.stack([ids, -ids], axis=2).astype(np.float32)


@pytest.mark.parametrize("count", [1, 3, 7, FEW + 1])
def test_rows_are_padded_with_the_last_one_and_cut_off_again(count: int) -> None:
    harness = Harness(lambda x: x * 2, [X], [X], sizes=(2, 5, 32))
    replies = harness.run(*(harness.send([[i, -i]]) for i in range(count)))
    assert [answer(harness, r)[0].tolist() for r in replies] == [
        [[2.0 * i, -2.0 * i]] for i in range(count)
    ]
    ((given_rows,),) = harness.seen
    padded = next(size for size in (2, 5, 32) if size >= count)
    assert given_rows.shape == (padded, 2)
    assert (given_rows[count:] == given_rows[count - 1]).all()


def test_values_of_json_are_padded_likewise() -> None:
    harness = Harness(lambda instances: [n + 1 for n in instances], sizes=(4,))
    replies = harness.run(harness.send(b"[1,2]", rows=2), harness.send(b"[5]"))
    assert [reply.data for reply in replies] == [b"[2,3]", b"[6]"]
    assert harness.seen == [[[1, 2, 5, 5]]]


def test_a_model_may_change_the_values_of_json_that_it_is_given() -> None:
    def predict(instances: Any) -> Any:
        for instance in instances:
            instance["n"] *= 2
        return [instance["n"] for instance in instances]

    harness = Harness(predict, sizes=(4,))
    replies = harness.run(harness.send(b'[{"n":1}]'), harness.send(b'[{"n":5}]'))
    assert [reply.data for reply in replies] == [b"[2]", b"[10]"]
    sample = [{"n": 3}] * 2
    for _ in range(2):
        assert harness.runner.answers(sample, 2) == [[6], [6]]


@pytest.mark.parametrize("rows", [1, 5])
def test_a_model_that_forgets_the_padding_has_returned_too_little(rows: int) -> None:
    harness = Harness(lambda x: x[:rows], [X], [X], sizes=(8,))
    (reply,) = harness.run(harness.send([[0, 0]] * rows, rows=rows))
    assert reply.answer.status is Status.WRONG_COUNT


def test_a_bad_request_among_padded_rows_fails_alone() -> None:
    def predict(x: Any) -> Any:
        if (x == 3).any():
            raise InvalidInput("three")
        return x

    harness = Harness(predict, [X], [X], sizes=(4, 8))
    replies = harness.run(*(harness.send([[i, i]]) for i in range(6)))
    statuses = [reply.answer.status for reply in replies]
    assert statuses == [Status.INVALID if i == 3 else Status.OK for i in range(6)]


def test_requests_of_unequal_length_run_as_one_batch() -> None:
    harness = Harness(total, [IDS], [SUM], edges=())
    replies = harness.run(harness.send([[1, 2, 3]]), harness.send([[10]]), harness.send([[]]))
    assert [answer(harness, reply)[0].tolist() for reply in replies] == [[6], [10], [0]]
    assert harness.shapes() == [[(3, 3)]]


def test_they_are_padded_to_the_edge_of_their_bucket() -> None:
    harness = Harness(total, [IDS], [SUM], edges=(4, 8))
    harness.run(harness.send([[1]]), harness.send([[2, 2, 2, 2]]))
    harness.run(harness.send([[1] * 5]))
    harness.run(harness.send([[1] * 9]))
    assert harness.shapes() == [[(2, 4)], [(1, 8)], [(1, 9)]]


def test_an_output_of_the_same_length_is_cut_to_that_of_its_request() -> None:
    harness = Harness(as_tokens, [IDS], [TOKENS], edges=(4,), values={"ids": 9})
    replies = harness.run(
        harness.send([[1, 2]]), harness.send([[3, 4, 5], [6, 7, 8]], rows=2), harness.send([[]])
    )
    assert answer(harness, replies[0])[0].tolist() == [[[1, -1], [2, -2]]]
    assert answer(harness, replies[1], rows=2)[0].shape == (2, 3, 2)
    assert answer(harness, replies[2])[0].shape == (1, 0, 2)
    assert harness.seen[0][0].tolist()[0] == [1, 2, 9, 9]


def test_every_input_has_a_padding_of_its_own() -> None:
    harness = Harness(
        lambda ids, mask, words: total(ids),
        [IDS, MASK, WORDS],
        [SUM],
        edges=(3,),
        values={"ids": -7},
    )
    harness.run(harness.send([[1, 2]], [[True, True]], [[b"a", b"b"]]))
    ids, mask, words = harness.seen[0]
    assert ids.tolist() == [[1, 2, -7]]
    assert mask.tolist() == [[True, True, False]]
    assert words.tolist() == [[b"a", b"b", b""]]


@pytest.mark.parametrize("edges", [(), (8,)])
def test_a_model_may_take_the_true_lengths(edges: tuple[int, ...]) -> None:
    def predict(counts: Any, ids: Any) -> Any:
        return np.array([row[:n].sum() for n, row in zip(counts, ids, strict=True)])

    harness = Harness(
        predict, [COUNTS, IDS], [SUM], edges=edges, values={"ids": 5}, lengths_input="counts"
    )
    assert harness.inputs == (IDS,), "clients do not send them"
    replies = harness.run(harness.send([[1, 1], [2, 2]], rows=2), harness.send([[7] * 4]))
    assert answer(harness, replies[0], rows=2)[0].tolist() == [2, 4]
    assert answer(harness, replies[1])[0].tolist() == [28]
    counts = harness.seen[0][0]
    assert (counts.dtype, counts.tolist()) == (np.dtype("<i8"), [2, 2, 4])


def test_lengths_and_rows_are_padded_together() -> None:
    harness = Harness(as_tokens, [IDS], [TOKENS], edges=(4,), sizes=(8,))
    replies = harness.run(harness.send([[1, 2, 3]]), harness.send([[4]]))
    assert [answer(harness, reply)[0].shape for reply in replies] == [(1, 3, 2), (1, 1, 2)]
    assert harness.shapes() == [[(8, 4)]]


def test_an_output_that_cannot_be_cut_again_is_not_padded() -> None:
    other = Tensor("other", "INT64", [-1])
    harness = Harness(as_tokens, [IDS, other], [TOKENS], edges=(4,))
    replies = harness.run(harness.send([[1, 2]], [[1, 2, 3]]))
    assert answer(harness, replies[0])[0].shape == (1, 2, 2)
    assert harness.shapes() == [[(1, 2), (1, 3)]]


def test_requests_that_a_lying_frontend_put_together_are_run_apart() -> None:
    harness = Harness(total, [IDS], [SUM], edges=(2, 4))
    replies = harness.run(harness.send([[1]]), harness.send([[1, 2, 3]]), harness.send([[1] * 9]))
    assert [answer(harness, reply)[0].tolist() for reply in replies] == [[1], [6], [9]]
    assert sorted(shape for ((shape,),) in zip(harness.shapes(), strict=True)) == [
        (1, 2),
        (1, 4),
        (1, 9),
    ]


def test_a_batch_that_would_take_too_much_memory_is_run_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(padding_module, "FREE_BYTES", 1000)
    monkeypatch.setattr(padding_module, "GROWTH", 2)
    harness = Harness(lambda image: image.sum(axis=(1, 2)), [Tensor("i", "INT64", [-1, -1])], [SUM],
                  edges=())  # fmt: skip
    tall, wide = np.ones((1, 100, 1), "i8"), np.ones((1, 1, 100), "i8")
    replies = harness.run(harness.send(tall), harness.send(wide))
    assert [answer(harness, reply)[0].tolist() for reply in replies] == [[100], [100]]
    assert harness.shapes() == [[(1, 100, 1)], [(1, 1, 100)]]


def test_a_payload_that_lies_costs_nobody_else() -> None:
    harness = Harness(total, [IDS], [SUM], edges=(4,))
    good, bad = harness.send([[1, 2]]), harness.send([[3, 4]])
    start = harness.client.lane.request_offset[bad & SLOT_MASK]
    harness.segment.memory[start : start + 8] = (1 << 40).to_bytes(8, "little")
    replies = harness.run(good, bad)
    assert answer(harness, replies[0])[0].tolist() == [3]
    assert replies[1].answer.status is Status.CORRUPT


def test_an_output_of_another_length_cannot_be_cut() -> None:
    harness = Harness(lambda ids: as_tokens(ids)[:, :3], [IDS], [TOKENS], edges=(8,))
    (reply,) = harness.run(harness.send([[1, 2]]))
    assert reply.answer.status is Status.MODEL_FAILED
    assert b"has shape [1, 3, 2] for inputs that were padded to 8" in reply.data


def test_only_the_request_with_nan_in_its_own_answer_fails() -> None:
    """NaN in the padding belongs to no answer."""

    def predict(ids: Any) -> Any:
        tokens = as_tokens(ids)
        tokens[ids == 0] = np.nan
        return tokens

    harness = Harness(predict, [IDS], [TOKENS], edges=(8,), finite=True)
    good, bad = harness.run(harness.send([[1, 2]]), harness.send([[1, 0]]))
    assert answer(harness, good)[0].shape == (1, 2, 2)
    assert bad.answer.status is Status.MODEL_FAILED


def test_only_the_request_with_its_own_numbers_beyond_the_type_fails() -> None:
    bytes_of = Tensor("bytes", "UINT8", [-1])
    harness = Harness(
        lambda ids: np.where(ids, ids, 999).astype("u4"), [IDS], [bytes_of], edges=(8,)
    )
    good, bad, other = harness.run(
        harness.send([[1, 2]]), harness.send([[1, 256]]), harness.send([[3]])
    )
    assert [answer(harness, reply)[0].tolist() for reply in (good, other)] == [[[1, 2]], [[3]]]
    assert bad.answer.status is Status.MODEL_FAILED
    assert b"output 'bytes' holds numbers beyond the declared UINT8" in bad.data


def test_an_answer_that_does_not_fit_says_how_much_it_takes() -> None:
    harness = Harness(as_tokens, [IDS], [TOKENS], edges=(8,))
    small, large = harness.run(
        harness.send([[1]], result_bytes=128), harness.send([[1] * 8], result_bytes=64)
    )
    assert small.answer.status is Status.OK
    assert (large.answer.status, large.answer.size) == (Status.RESULT_TOO_LARGE, 64 + 8 * 2 * 4)


@pytest.mark.parametrize(
    ("inputs", "more", "words"),
    [
        ([IDS], {"values": {"idz": 1}}, "no input 'idz'; there is: ids"),
        ([IDS], {"lengths_input": "n"}, "no input 'n'"),
        ([IDS, X], {"lengths_input": "x"}, r"'x' is FP32 \[2\], but one that takes lengths must"),
        ([IDS, COUNTS], {"lengths_input": "ids"}, r"'ids' is INT64 \[-1\], but"),
        ([IDS], {"values": {"ids": 0.5}}, "'ids' is INT64 and cannot be padded with 0.5"),
        ([MASK], {"values": {"mask": 2}}, "'mask' is BOOL and cannot be padded with 2"),
        ([WORDS], {"values": {"words": 1}}, "'words' is BYTES and cannot be padded with 1"),
        ([X], {}, "nothing to pad"),
    ],
)
def test_a_model_that_is_not_made_for_it_is_refused(
    inputs: list[Tensor], more: dict[str, Any], words: str
) -> None:
    model = Model(tuple(inputs), (SUM,), lambda: None, total)
    arguments = {"edges": (), "values": {}, "lengths_input": ""} | more
    with pytest.raises(Unfit, match=words):
        padding(model, **arguments)


def test_floats_are_padded_with_the_nearest_value() -> None:
    model = Model((Tensor("x", "FP16", [-1]),), (SUM,), lambda: None, total)
    _, found = padding(model, (), {"x": 0.1}, "")
    assert found.values[0] == np.float16(0.1)


requests = st.lists(
    st.lists(st.lists(st.integers(-99, 99)), min_size=1, max_size=3).filter(
        lambda rows: len({len(row) for row in rows}) == 1
    ),
    min_size=1,
    max_size=9,
)


@given(
    requests,
    st.lists(st.integers(1, 12), max_size=3, unique=True).map(sorted),
    st.lists(st.integers(1, 30), max_size=3, unique=True).map(sorted),
)
def test_each_request_gets_its_unbatched_answer_in_any_shape(
    sent: list[list[list[int]]], edges: list[int], sizes: list[int]
) -> None:
    harness = Harness(
        lambda ids: (as_tokens(ids), total(ids)),
        [IDS],
        [TOKENS, SUM],
        edges=tuple(edges),
        sizes=tuple(sizes),
    )
    replies = harness.run(*(harness.send(rows, rows=len(rows)) for rows in sent))
    for rows, reply in zip(sent, replies, strict=True):
        ids = np.array(rows, "i8").reshape(len(rows), -1)
        tokens, sums = answer(harness, reply, rows=len(rows))
        assert np.array_equal(tokens, as_tokens(ids))
        assert np.array_equal(sums, total(ids))
