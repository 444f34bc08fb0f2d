"""Offloaded reading: another process reads large bodies of every protocol.

Each request ends once, whatever happens in between.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest
from frontend_harness import SECOND_NS, TIMEOUT_NS, FrontendHarness, Held, typed, untyped

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.falcon.text_resources import (
    ClassifyingCodec,
    EmbeddingsCodec,
    RerankingCodec,
    TextFraming,
)
from ringbatch.frontend.grpc import inference as grpc_inference
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.offloaded_messages import MAX_FIELDS
from ringbatch.frontend.request import offload as request_apart
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.model_spec import Forward, ModelSpec
from ringbatch.shm.tallies import CLIENT_GONE, CODE_LABELS, ends_of
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens

BLANKS: Final = b" " * LARGE_BODY_BYTES
LEFT: Final = str(CLIENT_GONE)
ROWS: Final = LARGE_BODY_BYTES // 8 + 1
_ASKING: Final = typed(words=())
_UNTYPED: Final = untyped("double")
_FORWARDED: Final = untyped("double", forward=Forward("/v1/models/m:predict", (), any_path=False))
_BYTES: Final = replace(typed(), inputs=(Tensor("x", "BYTES", []),), max_batch_size=64)


def _texts(output: str) -> ModelSpec:
    return untyped(
        "double",
        inputs=(TEXT,),
        outputs=(Tensor(output, "FP32", [4]),),
        tokens=Tokens("/none", "", 8, truncate=True, pairs=False, vocabulary=9),
    )


class Case:
    """A service of one model whose other process waits, and the answers that came."""

    def __init__(self, spec: ModelSpec, slots: int = 1024) -> None:
        self.harness = FrontendHarness(spec, slots=slots, lane_bytes=1 << 24)
        self.service = self.harness.service
        self.apart = self.service.engine.apart = Held()
        self.answers: list[Answer] = []

    @property
    def ends(self) -> list[str]:
        """Status codes of the requests that were not answered with 200."""
        account = self.service.model("double").spec.account
        by_protocol = ends_of(self.harness.segment, [account])[account].codes
        codes = ("200", *CODE_LABELS)
        return [
            code
            for counts in by_protocol
            for code, count in zip(codes, counts, strict=True)
            for _ in range(count)
        ]

    def v1(
        self, text: bytes = b'{"instances":[[1,2]]}', timeout_ns: int = 0
    ) -> RequestHandle | None:
        body = text + BLANKS
        return self.service.predict("double", body, self.answers.append, timeout_ns)

    def untyped(self) -> RequestHandle | None:
        return self.v1(b'{"instances":[1,2]}')

    def v2(self) -> RequestHandle | None:
        given = _input("FP32", [1, 2]) | {"data": [1, 2]}
        body = orjson.dumps({"inputs": [given]}) + BLANKS
        return self.service.infer("double", body, None, self.answers.append)

    def v2_binary(self) -> RequestHandle | None:
        given = _input("FP32", [1, 2]) | {"parameters": {"binary_data_size": 8}}
        text = orjson.dumps({"inputs": [given]}) + BLANKS
        return self.service.infer("double", text + bytes(8), len(text), self.answers.append)

    def v2_binary_texts(self) -> RequestHandle | None:
        size = 8 * ROWS
        given = _input("BYTES", [2 * ROWS]) | {"parameters": {"binary_data_size": size}}
        text = orjson.dumps({"inputs": [given]})
        return self.service.infer("double", text + bytes(size), len(text), self.answers.append)

    def grpc(self, *, raw: bool = True) -> RequestHandle | None:
        rows = 2 * ROWS
        shape = [rows] if raw else [rows // 2, 2]
        given = _input("BYTES" if raw else "FP32", shape)
        message = inference("ModelInferRequest")(model_name="double", inputs=[given])
        if raw:
            message.raw_input_contents.append(bytes(4 * rows))
        else:
            message.inputs[0].contents.fp32_contents.extend([0] * rows)
        return Inference(self.service).start(message.SerializeToString(), 0, Framing(), self._reply)

    def grpc_typed(self) -> RequestHandle | None:
        return self.grpc(raw=False)

    def embeddings(self) -> RequestHandle | None:
        return self._of_texts(EmbeddingsCodec, {"input": [[1]] * 20})

    def reranking(self) -> RequestHandle | None:
        return self._of_texts(RerankingCodec, {"query": "a", "texts": ["cat"]})

    def classification(self) -> RequestHandle | None:
        return self._of_texts(ClassifyingCodec, {"inputs": "cat"})

    def _of_texts(self, codec: Callable[[Any], Any], body: Any) -> RequestHandle | None:
        text = orjson.dumps(body) + BLANKS
        start = self.service.pipeline.start
        return start(codec(self.service), "", text, TextFraming(), self.answers.append)

    def _reply(self, answer: GrpcAnswer) -> None:
        self.answers.append((200, b"", ()) if answer.error is None else outcome(answer.error))


def _input(datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape}


WAYS: Final[dict[str, tuple[ModelSpec, Callable[[Case], RequestHandle | None]]]] = {
    "V1": (typed(), Case.v1),
    "V1 asking": (_ASKING, Case.v1),
    "V1 untyped": (_UNTYPED, Case.untyped),
    "V1 untyped, asking": (replace(_UNTYPED, words=()), Case.untyped),
    "V1 forwarded": (_FORWARDED, Case.untyped),
    "V2": (typed(), Case.v2),
    "V2 asking": (_ASKING, Case.v2),
    "V2 text before binary data": (typed(), Case.v2_binary),
    "V2 binary texts": (_BYTES, Case.v2_binary_texts),
    "gRPC texts": (_BYTES, Case.grpc),
    "gRPC typed": (replace(typed(), max_batch_size=64), Case.grpc_typed),
    "embeddings": (_texts("embedding"), Case.embeddings),
    "reranking": (_texts("score"), Case.reranking),
    "classification": (_texts("logits"), Case.classification),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_large_body_is_read_on_the_event_loop(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, send = WAYS[way]

    async def sent() -> None:
        case = Case(spec)

        def read(*_: Any) -> None:
            raise AssertionError("it is read on the event loop")

        with monkeypatch.context() as patch:
            for model in (V1Model, V2Model):
                patch.setattr(model, "requests", property(read, lambda *_: None), raising=False)
                patch.setattr(model, "asked", property(read, lambda *_: None), raising=False)
            patch.setattr(grpc_inference, "parsed", read)
            patch.setattr(orjson, "loads", read)
            assert send(case) is not None
        assert len(case.apart.waiting) == 1
        assert case.answers == []
        await case.apart.go_on()
        if spec.tokens is None:
            assert case.answers == []
            assert case.harness.lane.in_flight > 0
        elif way == "embeddings":
            assert case.harness.lane.in_flight > 0
        else:
            assert [status for status, _, _ in case.answers] == [503], "it has no tokenizer"
        case.harness.gateway.close()

    asyncio.run(sent())


def test_a_large_body_of_raw_tensors_goes_no_other_way() -> None:
    count = LARGE_BODY_BYTES
    service = Case(replace(typed(), inputs=(Tensor("x", "FP32", [count]),))).service
    data = inference("ModelInferRequest")(
        model_name="double",
        inputs=[_input("FP32", [1, count])],
        raw_input_contents=[bytes(4 * count)],
    )
    call = Inference(service).start(data.SerializeToString(), 0, Framing(), lambda _: None)
    assert call is not None
    assert service.engine.lane.in_flight == 1


def test_it_goes_on_with_the_time_that_it_was_accepted() -> None:
    async def asked() -> None:
        case = Case(typed())
        begun_ns = case.harness.loop.now_ns
        call = case.v1(timeout_ns=5 * SECOND_NS)
        assert call is not None
        case.harness.loop.now_ns += 2 * SECOND_NS
        await case.apart.go_on()
        case.harness.loop.turn()
        (request,) = case.harness.taken()
        assert (request.accepted_ns, request.deadline_ns) == (begun_ns, begun_ns + 5 * SECOND_NS)
        case.harness.answer([request])
        case.harness.gateway.collect()
        assert [status for status, _, _ in case.answers] == [200]

    asyncio.run(asked())


def test_a_client_that_leaves_during_the_reading_is_counted_once_and_nothing_is_read() -> None:
    async def asked() -> None:
        case = Case(typed())
        call = case.v1(b"not to be read")
        assert call is not None
        call.abandon()
        call.abandon()
        await case.apart.go_on()
        assert (case.answers, case.ends) == ([], [LEFT])
        assert case.apart.done == 0
        assert case.harness.lane.in_flight == 0

    asyncio.run(asked())


def test_a_client_that_leaves_afterwards_gives_the_slot_back() -> None:
    async def asked() -> None:
        case = Case(typed())
        call = case.v1()
        assert call is not None
        await case.apart.go_on()
        assert case.harness.lane.in_flight == 1
        call.abandon()
        assert case.harness.count(LaneCounter.CANCELLED) == 1
        assert case.ends == [LEFT]

    asyncio.run(asked())


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (b'{"instances":[1]}', 400, "instances[0] is 1, but"),
        (b"{", 400, "can't unmarshal body"),
    ],
)
def test_an_unreadable_body_is_answered_once(text: bytes, status: int, words: str) -> None:
    async def asked() -> None:
        case = Case(typed())
        assert case.v1(text) is not None
        await case.apart.go_on()
        ((found, body, _),) = case.answers
        assert (found, case.ends) == (status, [str(status)])
        assert words in body.decode()

    asyncio.run(asked())


def test_a_process_that_breaks_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a detail")

    async def asked() -> None:
        case = Case(typed())
        assert case.v1() is not None
        monkeypatch.setattr(request_apart, "encode_parts", defect)
        await case.apart.go_on()
        assert case.answers == [(500, b'{"error":"internal error"}', case.answers[0][2])]
        assert "ZeroDivisionError" in caplog.text

    asyncio.run(asked())


async def until_answered(case: Case) -> None:
    while not case.answers:
        await asyncio.sleep(0.001)


def test_a_deadline_holds_while_others_are_read() -> None:
    async def asked() -> None:
        case = Case(typed())
        assert case.v1(timeout_ns=SECOND_NS // 100) is not None
        await until_answered(case)
        ((status, body, _),) = case.answers
        assert (status, case.ends) == (504, ["504"])
        assert b"no answer came within the 0.01 s it asked for" in body
        assert case.harness.count(LaneCounter.TIMEOUTS) == 1
        await case.apart.go_on()
        assert case.harness.lane.in_flight == 0

    asyncio.run(asked())


def test_a_request_whose_time_is_over_is_refused_at_once() -> None:
    async def asked() -> None:
        case = Case(typed())
        assert case.v1(timeout_ns=-1) is None
        assert [status for status, _, _ in case.answers] == [504]
        assert case.apart.waiting == []

    asyncio.run(asked())


def test_no_more_wait_than_there_is_room_for_and_one_alone_always_may() -> None:
    async def asked() -> None:
        case = Case(typed())
        case.apart.queue.most = LARGE_BODY_BYTES
        assert case.v1() is not None
        case.apart.queue.size = 1
        assert case.v1() is None
        ((status, body, _),) = case.answers
        assert status == 503
        assert f"may have {LARGE_BODY_BYTES} bytes together" in body.decode()
        assert case.harness.count(LaneCounter.REFUSED) == 1
        await case.apart.go_on()

    asyncio.run(asked())


def test_a_model_that_becomes_another_meanwhile_has_the_body_read_anew() -> None:
    async def asked() -> None:
        case = Case(typed())
        assert case.v1(timeout_ns=TIMEOUT_NS) is not None
        other = replace(typed(), inputs=(Tensor("x", "FP64", [2]),))
        case.harness.segment.model_table.publish((other,))
        await case.apart.go_on()
        assert case.harness.lane.in_flight == 0
        await case.apart.go_on()
        case.harness.loop.turn()
        (request,) = case.harness.taken()
        assert request.request_bytes == 16

    asyncio.run(asked())


def test_a_message_has_a_bounded_number_of_fields() -> None:
    outputs = [{"name": "y"}] * MAX_FIELDS
    message = inference("ModelInferRequest")(model_name="double", outputs=outputs, id="i")
    message.inputs.add(name="x" * LARGE_BODY_BYTES)
    case = Case(typed())
    data = message.SerializeToString()
    assert Inference(case.service).start(data, 0, Framing(), case._reply) is None
    ((status, body, _),) = case.answers
    assert status == 400
    assert f"more than {MAX_FIELDS} fields" in body.decode()
