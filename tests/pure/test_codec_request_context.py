"""Request context for models: the id, parameters and headers that frontends write into slots."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from segment_fixture import pack, spec

from ringbatch.engine.models.request_context import Request
from ringbatch.frontend.client.arrays import ArrayCodec, RowCodec
from ringbatch.frontend.codec.request_context import RequestContext
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import requests_of as grpc_requests
from ringbatch.frontend.v1.json_values import ValueCodec
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm import model_spec
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import MOST_BYTES, REQUEST_CONTEXT
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
ROWS = np.arange(10, dtype="<f4").reshape(5, 2)
HEAD = b"POST /v1/a:predict?x-tenant=no HTTP/1.1\r\nX-Tenant:\t blue \r\nx-Request-ID: r7\r\n\r\n"
PAIRS = [(b"x-tenant", b"blue"), (b"x-request-id", b"r7")]


def asking(*inputs: Tensor, headers: tuple[str, ...] = ("x-tenant",)) -> ModelSpec:
    outputs = [X] if inputs else []
    return replace(spec(0, inputs, outputs, max_batch_size=2), words=headers)


def decoded(text: bytes) -> Any:
    return json.loads(text)


@pytest.mark.parametrize("raw_headers", [HEAD, PAIRS])
def test_it_is_the_id_the_parameters_and_the_headers_that_are_chosen(raw_headers: Any) -> None:
    words = RequestContext(asking(X))
    assert decoded(words.text(raw_headers, "", {"k": [1, None]})) == {
        "id": "r7",
        "parameters": {"k": [1, None]},
        "headers": {"x-tenant": "blue"},
    }
    assert decoded(words.text(raw_headers, "42", None))["id"] == "42"
    assert (
        decoded(RequestContext(asking(X, headers=())).text(raw_headers, "", None))["headers"] == {}
    )


def test_a_header_that_comes_twice_is_one_text_and_one_that_does_not_come_is_none() -> None:
    words = RequestContext(asking(X, headers=("x-a", "x-b")))
    pairs = [(b"x-a", b"1"), (b"x-a", b"\xe9")]
    assert decoded(words.text(pairs, "", None))["headers"] == {"x-a": "1, é"}
    assert decoded(words.text(b"", "", None)) == {"id": "", "parameters": {}, "headers": {}}


def test_a_context_that_is_too_large_or_no_object_is_refused() -> None:
    words = RequestContext(asking(X))
    with pytest.raises(RequestTooLarge, match=f"a model gets at most {MOST_BYTES} of a request"):
        words.text(HEAD, "", {"k": "x" * MOST_BYTES})
    with pytest.raises(InvalidRequest, match="are an object"):
        words.text(HEAD, "", [1])
    with pytest.raises(InvalidRequest, match="cannot be passed on"):
        words.text(HEAD, "", {"k": "\ud800"})


CONTEXT = {"id": "r7", "parameters": {"k": 1}, "headers": {"x-tenant": "blue"}}


def expected(context: Any) -> list[tuple[int, bytes, int]]:
    """Return the expected parts of three slots, with the context in the first row of each."""
    parts = []
    for start in (0, 2, 4):
        rows = ROWS[start : start + 2]
        words = np.array([orjson.dumps(context), b""], object)[: len(rows)]
        payload, key_bytes = pack((X, REQUEST_CONTEXT), [rows, words])
        parts.append((len(rows), payload, key_bytes))
    return parts


def plain(parts: Any) -> list[tuple[int, bytes, int]]:
    return [(rows, bytes(payload), key_bytes) for rows, payload, key_bytes in parts]


def test_each_slot_of_a_split_request_has_it() -> None:
    model = asking(X)
    body = json.dumps({"k": 1, "instances": ROWS.tolist()}).encode()
    v1 = V1Model(model)
    assert v1.with_context is not None
    assert plain(v1.with_context.parse(body, HEAD)[0]) == expected(CONTEXT)
    tensor = {"name": "x", "datatype": "FP32", "shape": [5, 2], "data": ROWS.reshape(-1).tolist()}
    body = json.dumps({"inputs": [tensor], "parameters": {"k": 1}}).encode()
    v2 = V2Model(model).asked
    assert v2 is not None
    for _ in range(2):
        assert plain(v2.with_headers(PAIRS).parse(body, None).parts) == expected(CONTEXT)
    silent = v2.parse(body, None)
    assert plain(silent.parts) == expected(CONTEXT | {"id": "", "headers": {}}), "of the one before"
    message = inference("ModelInferRequest")(
        inputs=[{"name": "x", "datatype": "FP32", "shape": [5, 2]}],
        raw_input_contents=[ROWS.tobytes()],
        parameters={"k": {"int64_param": 1}},
    )
    assert plain(grpc_requests(model).read(message, PAIRS).parts) == expected(CONTEXT)
    assert plain(ArrayCodec(model).parse(ROWS)) == expected({})


def test_lists_of_values_have_it_in_front() -> None:
    model = asking()
    v1 = V1Model(model)
    assert v1.with_context is not None
    parts, _ = v1.with_context.parse(b'{"k": 1, "instances": [ "a", {"b": 6.0}, 3]}', HEAD)
    found = [(rows, json.loads(bytes(payload)), key_bytes) for rows, payload, key_bytes in parts]
    assert found == [(2, [CONTEXT, "a", {"b": 6.0}], 0), (1, [CONTEXT, 3], 0)]
    assert b"6.0" in bytes(parts[0][1])
    found = [(rows, json.loads(bytes(text)), _) for rows, text, _ in ValueCodec(model).parse([1])]
    assert found == [(1, [{}, 1], 0)]


def test_models_that_do_not_ask_have_slots_as_ever() -> None:
    plain_model = spec(0, [X], [X], max_batch_size=2)
    v1, v2 = V1Model(plain_model), V2Model(plain_model)
    assert (v1.with_context, v2.asked, plain_model.carried) == (None, None, (X,))
    ((rows, payload, key_bytes),), _ = v1.requests.parse(b'{"k": 1, "instances": [[0, 1]]}')
    assert (rows, bytes(payload), key_bytes) == (1, ROWS[:1].tobytes(), 0)


def test_single_rows_at_a_time_are_not_for_models_that_ask() -> None:
    with pytest.raises(InvalidRequest, match="send its instances with infer"):
        RowCodec(asking(X))


def test_it_survives_the_model_table() -> None:
    for model in (asking(X), asking(X, headers=()), spec(0, [X], [X])):
        assert model_spec.loads(model_spec.dumps((model,))) == (model,)


def test_an_entry_that_says_nothing() -> None:
    silent = Request()
    assert (silent.id, silent.parameters, silent.headers, silent.cancelled) == ("", {}, {}, False)
    assert silent.remaining_s > 1e6
    assert repr(silent) == "Request(id='', parameters={}, headers={})"
