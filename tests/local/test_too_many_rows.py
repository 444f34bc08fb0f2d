"""Requests that make more batches than may be under way: every decoder refuses them by their count
of instances, before it makes anything of these."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest
from frontend_harness import FrontendHarness, typed, untyped

from ringbatch.frontend.codec.json_to_tensor import TensorReader
from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.falcon.text_resources import EmbeddingsCodec, TextFraming
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.frontend.v1 import request as v1_request
from ringbatch.frontend.v2.input import Input
from ringbatch.shm.model_spec import Forward, ModelSpec
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens

SLOTS: Final = 8
CAP: Final = 4
MOST: Final = SLOTS * CAP
_MATRIX: Final = replace(typed(), inputs=(Tensor("x", "FP32", [1, 2]),))
_ASKING: Final = typed(words=())
_UNTYPED: Final = untyped("double")
_FORWARDED: Final = untyped("double", forward=Forward("/v1/models/m:predict", (), any_path=False))
_TEXTS: Final = untyped(
    "double",
    inputs=(TEXT,),
    outputs=(Tensor("embedding", "FP32", [4]),),
    tokens=Tokens("/none", "", 8, truncate=True, pairs=False, vocabulary=9),
)


class Case:
    """A service of one model, and how it answered."""

    def __init__(self, spec: ModelSpec) -> None:
        self.service = FrontendHarness(spec, slots=SLOTS).service
        self.answers: list[Answer] = []

    def v1(self, rows: Any, **others: Any) -> None:
        body = orjson.dumps({"instances": rows, **others})
        assert self.service.predict("double", body, self.answers.append) is None

    def columns(self, rows: Any) -> None:
        body = orjson.dumps({"inputs": {"x": rows}})
        assert self.service.predict("double", body, self.answers.append) is None

    def v2(self, rows: Any) -> None:
        body = orjson.dumps({"inputs": [_input(rows) | {"data": rows}]})
        assert self.service.infer("double", body, None, self.answers.append) is None

    def v2_binary(self, rows: Any) -> None:
        size = 8 * len(rows)
        given = _input(rows) | {"parameters": {"binary_data_size": size}}
        text = orjson.dumps({"inputs": [given]})
        assert self.service.infer("double", text + bytes(size), len(text), self.reply) is None

    def grpc(self, rows: Any, *, raw: bool = True) -> None:
        message = inference("ModelInferRequest")(model_name="double", inputs=[_input(rows)])
        if raw:
            message.raw_input_contents.append(bytes(8 * len(rows)))
        else:
            message.inputs[0].contents.fp32_contents.extend([0] * 2 * len(rows))
        data = message.SerializeToString()
        assert Inference(self.service).start(data, 0, Framing(), self._reply) is None

    def grpc_typed(self, rows: Any) -> None:
        self.grpc(rows, raw=False)

    def embeddings(self, rows: Any) -> None:
        body, codec = orjson.dumps({"input": rows}), EmbeddingsCodec(self.service)
        assert self.service.pipeline.start(codec, "", body, TextFraming(), self.reply) is None

    def reply(self, answer: Answer) -> None:
        self.answers.append(answer)

    def _reply(self, answer: GrpcAnswer) -> None:
        assert answer.error is not None
        self.answers.append(outcome(answer.error))


def _input(rows: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [len(rows), 2]}


WAYS: Final[dict[str, tuple[ModelSpec, Callable[[Case, Any], None], Any]]] = {
    "V1 vector": (typed(), Case.v1, [0, 0]),
    "V1": (_MATRIX, Case.v1, [[0, 0]]),
    "V1 columns": (typed(), Case.columns, [0, 0]),
    "V1 asking": (_ASKING, Case.v1, [0, 0]),
    "V1 untyped": (_UNTYPED, Case.v1, 0),
    "V1 untyped, asking": (replace(_UNTYPED, words=()), Case.v1, 0),
    "V1 forwarded": (_FORWARDED, Case.v1, 0),
    "V1 texts": (_TEXTS, Case.v1, "cat"),
    "V2": (typed(), Case.v2, [0, 0]),
    "V2 asking": (_ASKING, Case.v2, [0, 0]),
    "V2 binary": (typed(), Case.v2_binary, [0, 0]),
    "gRPC": (typed(), Case.grpc, [0, 0]),
    "gRPC typed": (typed(), Case.grpc_typed, [0, 0]),
    "embeddings": (_TEXTS, Case.embeddings, "cat"),
    "embeddings of tokens": (_TEXTS, Case.embeddings, [1]),
}


@pytest.fixture(autouse=True)
def _nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: Any, **__: Any) -> None:
        raise AssertionError("something is made of them")

    for owner, name in (
        (TensorReader, "open"),
        (TensorReader, "pack_flat"),
        (Input, "packed"),
        (Input, "unpacked"),
        (TextModel, "tokenized"),
        (v1_request, "in_runs"),
    ):
        monkeypatch.setattr(owner, name, made)


@pytest.mark.parametrize("way", WAYS)
def test_they_are_refused_before_anything_is_made_of_them(way: str) -> None:
    spec, send, row = WAYS[way]
    case = Case(spec)
    send(case, [row] * (MOST + 1))
    ((status, body, _),) = case.answers
    assert status == 413
    assert f"{MOST + 1} instances, which make {SLOTS + 1} batches" in body.decode()
    assert f"at most max_in_flight = {SLOTS}" in body.decode()
