"""Requests whose answers another process writes: they leave the event loop, whatever their
protocol, are those that this process would have written, and each request ends once.

Tests frontend/v2/offloaded_answers.py.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pytest
from frontend_harness import AtOnce, FrontendHarness, Held, typed, untyped
from text_models import VOCABULARY, write_directory

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.rendering import LARGE_RESULT_BYTES, LONG_RESULT_BYTES, LONG_ROWS
from ringbatch.frontend.falcon.text_resources import (
    ClassifyingCodec,
    EmbeddingsCodec,
    RerankingCodec,
    TextFraming,
)
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.offload.messages import Bytes, Job
from ringbatch.frontend.request import split, task
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.generate_codec import GenerateCodec
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import CLIENT_GONE, CODE_LABELS, ends_of
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens

BLANKS: Final = b" " * LARGE_BODY_BYTES
NUMBERS: Final = LARGE_RESULT_BYTES // 4 + 1
Y: Final = Tensor("y", "FP32", [NUMBERS])


class Noted(AtOnce):
    """Stand-in for another process that notes its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []

    def submit(
        self, wanted: Callable[[], bool], job: Job, value: Any, data: Sequence[Bytes]
    ) -> Any:
        """See `AtOnce.submit`."""
        self.jobs.append(job.__name__)
        return super().submit(wanted, job, value, data)


class Case:
    """A service of one model, an engine that answers with given results, and the answers."""

    def __init__(self, spec: ModelSpec, result: Callable[[Request, int], bytes]) -> None:
        self.harness = FrontendHarness(spec, slots=1024, lane_bytes=1 << 25)
        self.service = self.harness.service
        self.apart = self.service.engine.apart = Noted()
        self.result = result
        self.answers: list[Answer] = []

    def answer(self) -> None:
        """Answer all requests as the engine does."""
        harness = self.harness
        harness.loop.turn()
        requests = harness.taken()
        mark = BatchMark(7, sum(r.rows for r in requests), Reason.IDLE, 0)
        for number, request in enumerate(requests):
            found = self.result(request, number)
            start = request.result_offset
            if len(found) <= request.result_capacity:
                harness.segment.memory[start : start + len(found)] = found
                harness.engine_slots.answer(request.ref, Status.OK, len(found), mark, 0)
            else:
                harness.engine_slots.answer(
                    request.ref, Status.RESULT_TOO_LARGE, len(found), mark, 0
                )
        harness.engine_slots.flush()
        harness.gateway.collect()

    def finish(self) -> Answer:
        """The answer, whatever it takes."""
        for _ in range(5):
            self.answer()
            if self.answers:
                assert self.harness.lane.in_flight == 0
                return self.answers.pop()
        raise AssertionError("there is no answer")

    @property
    def ends(self) -> list[str]:
        """Status codes of the requests that were not answered with 200."""
        account = self.service.model(self.harness.name).spec.account
        codes = ends_of(self.harness.segment, [account])[account].codes
        labels = ("200", *CODE_LABELS)
        named = ((label, n) for counts in codes for label, n in zip(labels, counts, strict=True))
        return [label for label, count in named for _ in range(count)]

    def v1(self, rows: int = 1, *, columns: bool = False) -> RequestHandle | None:
        values = [[1, 2]] * rows
        body = orjson.dumps({"inputs": {"x": values}} if columns else {"instances": values})
        return self.service.predict("double", body, self.answers.append)

    def v2(self, rows: int = 1, **asked: Any) -> RequestHandle | None:
        given = {"name": "x", "datatype": "FP32", "shape": [rows, 2], "data": [1, 2] * rows}
        body = orjson.dumps({"inputs": [given], "id": "an id"} | asked)
        return self.service.infer("double", body, None, self.answers.append)

    def generate(self, rows: int = 1) -> RequestHandle | None:
        body = orjson.dumps({"x": [[1, 2]] * rows, "id": "an id"})
        codec = GenerateCodec(self.service, [])
        return self.service.pipeline.start(codec, "double", body, None, self.answers.append)

    def grpc(self, rows: int = 1, *, classes: int = 0) -> RequestHandle | None:
        request = inference("ModelInferRequest")(model_name="double", id="an id")
        request.inputs.add(name="x", datatype="FP32", shape=[rows, 2])
        request.raw_input_contents.append(bytes(8 * rows))
        if classes:
            output = request.outputs.add(name="y")
            output.parameters["classification"].int64_param = classes
        else:
            request.parameters["binary_data_output"].bool_param = False
        data = request.SerializeToString()
        return Inference(self.service).start(data, 0, Framing(), self._reply)

    def of_texts(self, codec: Callable[[Any], Any], body: Any) -> RequestHandle | None:
        start = self.service.pipeline.start
        text = orjson.dumps(body) + BLANKS
        return start(codec(self.service), "", text, TextFraming(), self.answers.append)

    def _reply(self, answer: GrpcAnswer) -> None:
        error = answer.error
        self.answers.append((200, answer.response, ()) if error is None else outcome(error))


def numbers(spec: ModelSpec) -> Callable[[Request, int], bytes]:
    """Results of numbers, other ones for each slot."""
    frame = Frame(spec.answered)

    def result(request: Request, number: int) -> bytes:
        size = frame.place(request.rows).size
        values = np.arange(size // 4, dtype="<f4") % 1000 + number
        return values.tobytes()

    return result


def strings(_request: Request, _number: int) -> bytes:
    """A result of one BYTES tensor."""
    text = joined([b"%d" % row for row in range(LONG_RESULT_BYTES // 4)])
    frame = Frame((Tensor("y", "BYTES", [LONG_RESULT_BYTES // 4]),))
    placement = frame.place(1, (), (len(text),))
    memory = bytearray(placement.size)
    prefix = frame.prefix((), (len(text),))
    memory[: len(prefix)] = prefix
    memory[placement.parts[0].offset :] = text
    return bytes(memory)


def values(request: Request, _number: int) -> bytes:
    """A result of a model without declared outputs."""
    return orjson.dumps([["x"] * LONG_RESULT_BYTES] * request.rows)


LARGE: Final = replace(typed(), outputs=(Y,))
LONG: Final = replace(typed(), outputs=(Tensor("y", "BYTES", [LONG_RESULT_BYTES // 4]),))
MANY: Final = LONG_ROWS // 2 + 2
TWO: Final = replace(
    typed(), outputs=(Tensor("y", "FP32", [2]), Tensor("z", "FP32", [1])), max_batch_size=4096
)
RANKED: Final = replace(typed(), outputs=(Tensor("y", "FP32", [3]),), max_batch_size=4096)
CLASSES: Final = {"outputs": [{"name": "y", "parameters": {"classification": 2}}]}
WAYS: Final[dict[str, tuple[ModelSpec, Any, Callable[[Case], RequestHandle | None], str]]] = {
    "V1": (LARGE, numbers, Case.v1, "write_v1"),
    "V1 in parts": (LARGE, numbers, lambda case: case.v1(9), "write_v1"),
    "V1 columns": (LARGE, numbers, lambda case: case.v1(columns=True), "write_v1"),
    "V1 strings": (LONG, lambda _: strings, Case.v1, "write_v1"),
    "V1 of several outputs": (TWO, numbers, lambda case: case.v1(MANY), "write_v1"),
    "V1 untyped": (untyped("double"), lambda _: values, Case.v1, "write_v1"),
    "V2": (LARGE, numbers, Case.v2, "write_v2"),
    "V2 in parts": (LARGE, numbers, lambda case: case.v2(9), "write_v2"),
    "V2 strings": (LONG, lambda _: strings, Case.v2, "write_v2"),
    "generate": (LARGE, numbers, Case.generate, "write_generated"),
    "V2 classes": (RANKED, numbers, lambda case: case.v2(LONG_ROWS + 1, **CLASSES), "write_v2"),
    "gRPC typed": (LARGE, numbers, Case.grpc, "write_grpc"),
    "gRPC strings": (LONG, lambda _: strings, Case.grpc, "write_grpc"),
    "gRPC classes": (
        RANKED,
        numbers,
        lambda case: case.grpc(LONG_ROWS + 1, classes=2),
        "write_grpc",
    ),
}


def both(case: Case, send: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the jobs of another process for an answer, which equals that of this process alone."""
    assert send(case) is not None
    there, jobs = case.finish(), case.apart.jobs
    case.apart.jobs = []
    for module in (task, split):
        monkeypatch.setattr(module, "SMALL_RESULT_BYTES", 1 << 40)
    send(case)
    assert case.finish() == there
    assert there[0] == 200
    return jobs


@pytest.mark.parametrize("way", WAYS)
def test_a_large_answer_is_written_apart_and_alike(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, result, send, job = WAYS[way]
    assert both(Case(spec, result(spec)), send, monkeypatch) == [job]


TEXTS: Final[dict[str, tuple[str, list[int], Any, Any]]] = {
    "embeddings": ("embedding", [4], EmbeddingsCodec, {"input": ["the cat"] * (LONG_ROWS + 1)}),
    "in base64": (
        "embedding",
        [4],
        EmbeddingsCodec,
        {"input": ["cat", "the mat"] * LONG_ROWS, "encoding_format": "base64", "dimensions": 2},
    ),
    "reranking": ("score", [1], RerankingCodec, {"query": "a", "texts": ["mat"] * (LONG_ROWS + 1)}),
    "with texts": (
        "score",
        [1],
        RerankingCodec,
        {"query": "cat", "documents": ["a mat", "b"] * LONG_ROWS, "return_documents": True},
    ),
    "classification": ("logits", [3], ClassifyingCodec, {"inputs": [["cat"]] * (LONG_ROWS + 1)}),
}


@pytest.mark.parametrize("way", TEXTS)
def test_large_answers_about_texts_are_written_apart_and_alike(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    output, shape, codec, body = TEXTS[way]
    folder = write_directory(tmp_path / "m")
    digest = hashlib.blake2b((folder / "tokenizer.json").read_bytes(), digest_size=16).hexdigest()
    path = str(folder / "tokenizer.json")
    spec = untyped(
        "double",
        inputs=(TEXT, TEXT)[:1],
        outputs=(Tensor(output, "FP32", shape),),
        max_batch_size=16,
        tokens=Tokens(path, digest, 16, truncate=True, pairs=False, vocabulary=len(VOCABULARY)),
    )
    case = Case(spec, numbers(spec))
    jobs = both(case, lambda given: given.of_texts(codec, body), monkeypatch)
    assert jobs[0] == "read_texts"
    assert jobs[1] in ("write_texts", "write_reordered")


def test_small_answers_are_written_here() -> None:
    spec = replace(typed(), outputs=(Tensor("y", "FP32", [LARGE_RESULT_BYTES // 8]),))
    case = Case(spec, numbers(spec))
    for send in (Case.v1, Case.v2):
        assert send(case) is not None
        assert case.finish()[0] == 200
    assert case.apart.jobs == []


def test_binary_data_is_copied_here_however_large() -> None:
    case = Case(LARGE, numbers(LARGE))
    assert case.v2(parameters={"binary_data_output": True}) is not None
    assert case.finish()[0] == 200
    assert case.apart.jobs == []


@pytest.mark.parametrize("rows", [1, 9])
def test_a_value_that_json_cannot_carry_is_answered_with_its_batch(rows: int) -> None:
    nan = np.full(NUMBERS * 4, np.nan, "<f4").tobytes()
    case = Case(LARGE, lambda request, _: nan[: request.rows * NUMBERS * 4])
    assert case.v1(rows) is not None
    status, body, headers = case.finish()
    assert (status, "x-batch-id" in dict(headers)) == (500, True)
    assert b"NaN or Infinity" in body
    assert case.ends == ["500"]


@pytest.mark.parametrize("rows", [1, 9])
def test_a_client_that_leaves_meanwhile_is_counted_once_and_the_slots_come_back(rows: int) -> None:
    async def asked() -> None:
        case = Case(LARGE, numbers(LARGE))
        held = case.service.engine.apart = Held()
        call = case.v1(rows)
        assert call is not None
        case.answer()
        assert (len(held.waiting), case.answers) == (1, [])
        assert case.harness.lane.in_flight == (rows + 3) // 4
        for _ in range(2):
            call.abandon()
        assert case.harness.lane.in_flight == 0
        await held.go_on()
        assert (case.answers, case.ends) == ([], [str(CLIENT_GONE)])
        assert held.done == 0

    asyncio.run(asked())


@pytest.mark.parametrize("rows", [1, 9])
def test_an_answer_that_finds_no_room_to_wait_is_refused(rows: int) -> None:
    case = Case(LARGE, numbers(LARGE))
    case.apart.queue.most = case.apart.queue.size = 1
    assert case.v1(rows) is not None
    status, body, _ = case.finish()
    assert (status, case.ends) == (503, ["503"])
    assert b"so many large requests wait" in body


@pytest.mark.parametrize("rows", [1, 9])
def test_a_process_that_breaks_is_an_internal_error(
    rows: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: Any) -> Any:
        raise ZeroDivisionError("a detail")

    from ringbatch.frontend.v1 import offloaded_answers

    monkeypatch.setattr(offloaded_answers, "_answers", defect)
    case = Case(LARGE, numbers(LARGE))
    assert case.v1(rows) is not None
    assert case.finish()[:2] == (500, b'{"error":"internal error"}')
    assert "ZeroDivisionError" in caplog.text
