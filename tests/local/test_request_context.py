"""Request context in batches: each row gets its own request's, however it is run."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from segment_fixture import Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.models.model import InvalidInput, Model
from ringbatch.engine.models.request_context import Request
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.request_context import RequestContextCodec
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.layout import PAGE
from ringbatch.shm.request_context import REQUEST_CONTEXT
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor

MARK = BatchMark(batch=1, rows=1, reason=Reason.FULL, dispatched_ns=0)
X = Tensor("x", "FP32", [])
IDS = Tensor("ids", "INT64", [-1])
SUM = Tensor("sum", "INT64", [])


class Harness:
    """A runner of such a model, and a client of it."""

    def __init__(
        self,
        predict: Callable[..., Any],
        inputs: Sequence[Tensor] = (X,),
        outputs: Sequence[Tensor] = (X,),
        *,
        sizes: tuple[int, ...] = (),
        padded: bool = False,
    ) -> None:
        self.contexts: list[list[tuple[str, Any]]] = []

        def watched(*arguments: Any) -> Any:
            self.contexts.append([(own.id, dict(own.parameters)) for own in arguments[-1]])
            return predict(*arguments)

        self.inputs = (*inputs, REQUEST_CONTEXT) if inputs else ()
        self.outputs = tuple(outputs) if inputs else ()
        model = Model(self.inputs, self.outputs, lambda: None, watched, asks=True)
        self.segment = local_segment(spec(0, self.inputs, self.outputs), lane_bytes=256 * PAGE)
        memory = self.segment.memory
        inner: Codec = TensorCodec(memory, model) if inputs else JsonCodec(memory, asks=True)
        if padded:
            model, shaped = padding(model, (), {}, "")
            inner = PaddedCodec(memory, model, shaped)
        self.client = Client(self.segment)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self.submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)
        codec = RequestContextCodec(inner, self.engine_slots.wanted)
        self.runner = Runner(
            RunnerSetup(model, "m", self.engine_slots, lambda: 0, sizes=sizes, codec=codec)
        )

    def send(self, words: bytes, *values: Any) -> int:
        if self.inputs:
            rows = len(values[0])
            contexts = np.array([words, *[b""] * rows], object)[:rows]
            payload, key_bytes = pack(self.inputs, [*values, contexts])
        else:
            ((instances,),) = (values,)
            rows, key_bytes = len(instances), 0
            payload = json.dumps([json.loads(words), *instances]).encode()
        self.client.send(payload, rows, key_bytes=key_bytes, result_bytes=4096)
        (ref,) = self.submitted.take()
        return ref

    def run(self, *references: int) -> list[Reply]:
        self.runner.run(list(references), MARK, 0)
        self.engine_slots.flush()
        replies = self.client.collect()
        return [replies[ref & SLOT_MASK] for ref in references]


def words(number: int) -> bytes:
    return json.dumps({"id": str(number), "parameters": {"n": number}, "headers": {}}).encode()


def own(number: int) -> tuple[str, Any]:
    return str(number), {"n": number}


NOTHING: tuple[str, Any] = ("", {})


def test_rows_of_several_requests_each_get_their_own_context() -> None:
    harness = Harness(lambda x, request: x)
    references = [harness.send(words(n), np.full(n, n, "f4")) for n in (1, 3, 2)]
    replies = harness.run(*references)
    assert harness.contexts == [[own(1), own(3), own(3), own(3), own(2), own(2)]]
    assert [
        unpack(harness.outputs, n, reply.data)[0].tolist()
        for n, reply in zip((1, 3, 2), replies, strict=True)
    ] == [[1], [3, 3, 3], [2, 2]]


def test_rows_that_fill_a_batch_up_get_no_context() -> None:
    harness = Harness(lambda x, request: x, sizes=(4,))
    harness.run(harness.send(words(7), np.ones(2, "f4")))
    assert harness.contexts == [[own(7), own(7), NOTHING, NOTHING]]


def test_halves_of_a_batch_get_their_own_contexts_and_one_request_fails_alone() -> None:
    def predict(x: Any, request: Sequence[Request]) -> Any:
        assert [one.parameters["n"] for one in request] == x.tolist()
        if (x == 5).any():
            raise InvalidInput("not five")
        return x

    harness = Harness(predict)
    replies = harness.run(*(harness.send(words(n), np.full(1, n, "f4")) for n in range(8)))
    assert [reply.answer.status for reply in replies] == [
        Status.INVALID if n == 5 else Status.OK for n in range(8)
    ]
    assert len(harness.contexts) > 2


def test_where_lengths_are_padded() -> None:
    harness = Harness(lambda ids, request: ids.sum(axis=1), [IDS], [SUM], padded=True)
    replies = harness.run(
        harness.send(words(1), np.array([[1, 2, 3]])), harness.send(words(2), np.array([[9], [8]]))
    )
    assert harness.contexts == [[own(1), own(2), own(2)]]
    assert unpack(harness.outputs, 2, replies[1].data)[0].tolist() == [9, 8]


def test_values_of_json() -> None:
    harness = Harness(lambda instances, request: instances, [], sizes=(4,))
    replies = harness.run(harness.send(words(1), ["a", None]), harness.send(words(2), [{"b": 1}]))
    assert harness.contexts == [[own(1), own(1), own(2), NOTHING]]
    assert [json.loads(reply.data) for reply in replies] == [["a", None], [{"b": 1}]]


def test_warm_up_rows_have_an_empty_context() -> None:
    for harness, values in (
        (Harness(lambda x, request: x), [np.ones(3, "f4")]),
        (Harness(lambda instances, request: instances, []), [1, 2, 3]),
        (
            Harness(lambda ids, request: ids.sum(axis=1), [IDS], [SUM], padded=True),
            [[np.ones((1, size), "i8")] for size in (1, 2, 3)],
        ),
    ):
        harness.runner.try_out(values, 3)
        assert harness.contexts == [[NOTHING] * 3]
        assert len(harness.runner.answers(values, 3)) == 3


def test_a_request_with_spoilt_words_gets_an_empty_context() -> None:
    harness = Harness(lambda x, request: x)
    (reply,) = harness.run(harness.send(b"[", np.ones(1, "f4")))
    assert (reply.answer.status, harness.contexts) == (Status.OK, [[NOTHING]])
    values = Harness(lambda instances, request: instances, [])
    values.client.send(b"[]", 1, result_bytes=64)
    (spoilt,) = values.submitted.take()
    (reply,) = values.run(spoilt)
    assert reply.answer.status is Status.CORRUPT


def test_a_gone_client_is_seen_as_cancelled_while_the_model_runs() -> None:
    seen = []

    def predict(x: Any, request: Sequence[Request]) -> Any:
        seen.append([one.cancelled for one in request])
        harness.client.lane.cancel(gone & SLOT_MASK)
        seen.append([one.cancelled for one in request])
        return x

    harness = Harness(predict)
    gone, stays = (harness.send(words(n), np.ones(1, "f4")) for n in (1, 2))
    harness.runner.run([gone, stays], MARK, 0)
    assert seen == [[False, False], [True, False]]
