"""The V2 codec: bodies of requests to slots, results in slots to bodies of responses."""

import json
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from segment_fixture import spec, unpack
from v2_models import (
    ADDONE,
    ECHO,
    FLAGS,
    HALF,
    MATRIX,
    ONE_TWO,
    OPEN,
    PAIR,
    STRINGS,
    T7,
    T8,
    T8_ANSWER,
    T9,
    T11,
    T12,
    TWO_THREE,
    X,
    Y,
    binary_answer,
    codec,
    json_answer,
    pair,
    payload,
    rendered,
)

from ringbatch.frontend.v2.offloaded_answers import decode_requested, encode_requested
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.tensor import Tensor


class Vector(NamedTuple):
    model: V2Model
    body: bytes
    json_bytes: int | None
    payload: bytes
    result: bytes
    answer: tuple[bytes, dict[str, str]]


T7_ANSWER = json_answer(
    b'{"id":"42","model_name":"addone","model_version":"1","outputs":[{"name":"y",'
    b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
)
VECTORS = {
    "json": Vector(ADDONE, T7, None, ONE_TWO, TWO_THREE, T7_ANSWER),
    "flat": Vector(
        ADDONE, T7.replace(b"[[1.0,2.0]]", b"[1,2]"), None, ONE_TWO, TWO_THREE, T7_ANSWER
    ),
    "json-of-known-length": Vector(ADDONE, T7, len(T7), ONE_TWO, TWO_THREE, T7_ANSWER),
    "binary": Vector(ADDONE, T8 + ONE_TWO, 134, ONE_TWO, TWO_THREE, T8_ANSWER),
    "binary-to-json": Vector(
        ADDONE,
        T9 + ONE_TWO,
        153,
        ONE_TWO,
        TWO_THREE,
        json_answer(
            b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y",'
            b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
        ),
    ),
    "raw": Vector(ADDONE, ONE_TWO, 0, ONE_TWO, TWO_THREE, T8_ANSWER),
    "strings": Vector(
        ECHO,
        T11 + STRINGS,
        93,
        len(STRINGS).to_bytes(8, "little").ljust(64, b"\0") + STRINGS,
        len(STRINGS).to_bytes(8, "little").ljust(64, b"\0") + STRINGS,
        json_answer(
            '{"model_name":"echo","model_version":"1","outputs":[{"name":"s","datatype":"BYTES",'
            '"shape":[3],"data":["ab","","é"]}]}'.encode()
        ),
    ),
    "half": Vector(
        HALF,
        T12 + bytes.fromhex("003c00c0"),
        134,
        bytes.fromhex("003c00c0"),
        bytes.fromhex("003c00c0"),
        binary_answer(
            b'{"model_name":"half","model_version":"1","outputs":[{"name":"h","datatype":"FP16",'
            b'"shape":[1,2],"parameters":{"binary_data_size":4}}]}',
            bytes.fromhex("003c00c0"),
        ),
    ),
}


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_vector_of_the_protocol_holds_byte_for_byte(
    vector: Vector, kind: type[bytes] | type[bytearray]
) -> None:
    for _ in range(2):  # a text seen before is not read again
        request = vector.model.requests.parse(kind(vector.body), vector.json_bytes)
        assert payload(request) == vector.payload
        body, headers = rendered(vector.model, request, vector.result)
        assert (body, dict(headers)) == vector.answer


def test_the_vectors_have_the_lengths_that_the_protocol_gives_them() -> None:
    assert [len(text) for text in (T7, T8, T9, T11, T12)] == [86, 134, 153, 93, 134]
    assert len(T7_ANSWER[0]) == 127
    assert T8_ANSWER[1]["inference-header-content-length"] == "136"


def test_fp32_is_written_as_the_double_it_is() -> None:
    request = ADDONE.requests.parse(T7, None)
    result = np.array([1.1, 1e20], "<f4").tobytes()
    assert (
        b'"data":[1.100000023841858,1.0000000200408773e+20]'
        in rendered(ADDONE, request, result).body
    )


@pytest.mark.parametrize(
    ("model", "data", "values"),
    [
        (MATRIX, "[1,2,3,4]", [1, 2, 3, 4]),
        (MATRIX, "[[1,2],[3,4]]", [1, 2, 3, 4]),
        (MATRIX, "[[[1,2],[3,4]]]", [1, 2, 3, 4]),
        (MATRIX, "[[[[1]],[[2]],[[3]],[[4]]]]", [1, 2, 3, 4]),
        (MATRIX, "[[1,2,3],[4]]", [1, 2, 3, 4]),
        (MATRIX, "[[],[1,2,3,4]]", [1, 2, 3, 4]),
        (MATRIX, "[-2147483648,2147483647,0,-0]", [-(1 << 31), (1 << 31) - 1, 0, 0]),
    ],
)
def test_data_may_be_nested_in_any_way(model: V2Model, data: str, values: list[int]) -> None:
    body = f'{{"inputs":[{{"name":"x","shape":[1,2,2],"datatype":"INT32","data":{data}}}]}}'
    assert payload(model.requests.parse(body.encode(), None)) == np.array(values, "<i4").tobytes()


def test_several_rows_of_a_vector_may_be_nested_or_flat() -> None:
    for data in ("[[1,2],[3,4]]", "[1,2,3,4]", "[[1,2,3],[4]]", "[[[1,2]],[[3,4]]]"):
        body = f'{{"inputs":[{{"name":"x","shape":[2,2],"datatype":"FP32","data":{data}}}]}}'
        assert (
            payload(ADDONE.requests.parse(body.encode(), None))
            == np.arange(1, 5, dtype="<f4").tobytes()
        )


def test_large_integers_stay_exact() -> None:
    numbers = [(1 << 63) - 1, -(1 << 63), (1 << 53) + 1, 0]
    body = f'{{"inputs":[{{"name":"x","shape":[1,2,2],"datatype":"INT64","data":{numbers}}}]}}'
    (array,) = unpack(
        [Tensor("x", "INT64", [-1, 2])], 1, payload(OPEN.requests.parse(body.encode(), None))
    )
    assert array.reshape(-1).tolist() == numbers


def test_any_byte_but_0_is_true() -> None:
    text = (
        b'{"inputs":[{"name":"f","shape":[1,2],"datatype":"BOOL",'
        b'"parameters":{"binary_data_size":2}}]}'
    )
    assert payload(FLAGS.requests.parse(text + b"\x02\x00", len(text))) == b"\x01\x00"
    request = FLAGS.requests.parse(text + b"\x00\x01", len(text))
    assert payload(request) == b"\x00\x01"
    assert b'"data":[false,true]' in rendered(FLAGS, request, b"\x00\x01").body


@pytest.mark.parametrize(
    ("tensor", "body", "shape"),
    [
        (Tensor("x", "FP32", [2]), bytes(8), (1, 2)),
        (Tensor("x", "FP32", []), bytes(4), (1,)),
        (Tensor("x", "INT16", [-1, 3]), bytes(12), (1, 2, 3)),
        (Tensor("x", "INT16", [-1]), b"", (1, 0)),
        (Tensor("x", "BYTES", [1]), b"any \xff thing", (1, 1)),
        (Tensor("x", "BYTES", []), b"", (1,)),
        (Tensor("x", "BYTES", [-1]), b"abc", (1, 1)),
    ],
)
def test_a_raw_body_is_one_instance(tensor: Tensor, body: bytes, shape: tuple[int, ...]) -> None:
    request = codec([tensor]).requests.parse(body, 0)
    (array,) = unpack([tensor], 1, payload(request))
    assert array.shape == shape
    if tensor.datatype.name == "BYTES":
        assert array.reshape(-1).tolist() == [body]
    else:
        assert array.tobytes() == body
    assert [output.binary for output in request.requested.outputs] == [True]


def test_a_request_without_instances_has_an_answer_at_once() -> None:
    body = b'{"inputs":[{"name":"x","shape":[0,2],"datatype":"FP32","data":[]}]}'
    request = ADDONE.requests.parse(body, None)
    assert request.parts == ()
    answer = ADDONE.answers.render((), request.requested, "")
    assert answer == (
        b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
        b'"shape":[0,2],"data":[]}]}',
        (("content-type", "application/json"),),
    )


def test_an_empty_binary_output_has_no_header() -> None:
    model = codec([Tensor("x", "FP32", [-1])])
    text = (
        b'{"inputs":[{"name":"x","shape":[1,0],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":0}}],"parameters":{"binary_data_output":true}}'
    )
    request = model.requests.parse(text, len(text))
    answer = rendered(model, request, payload(request))
    assert b'"shape":[1,0],"parameters":{"binary_data_size":0}' in answer.body
    assert dict(answer.headers) == json_answer(b"")[1]


@pytest.mark.parametrize(
    ("outputs", "parameters", "wanted"),
    [
        (None, {}, [(0, False), (1, False)]),
        ([], {}, [(0, False), (1, False)]),
        (None, {"binary_data_output": True}, [(0, True), (1, True)]),
        ([{"name": "q"}], {}, [(1, False)]),
        ([{"name": "q"}, {"name": "p"}], {"binary_data_output": True}, [(1, True), (0, True)]),
        (
            [{"name": "p", "parameters": {"binary_data": False}}, {"name": "q"}],
            {"binary_data_output": True},
            [(0, False), (1, True)],
        ),
        ([{"name": "p", "parameters": {"binary_data": True}}], {}, [(0, True)]),
        (
            [{"name": "p", "parameters": {"classification": 0}}],
            {"priority": 3, "sequence_id": 0, "sequence_start": False, "mine": 1.5},
            [(0, False)],
        ),
    ],
)
def test_outputs_are_as_they_are_asked_for(
    outputs: Any, parameters: Any, wanted: list[tuple[int, bool]]
) -> None:
    request = {"inputs": pair(), "outputs": outputs, "parameters": parameters, "other": None}
    requested = PAIR.requests.parse(json.dumps(request).encode(), None).requested
    assert [(output.output, output.binary) for output in requested.outputs] == wanted


def test_an_id_is_the_requests_own_after_any_other() -> None:
    model = codec([X], [Y])
    rest = T8[1:]
    twice = rest[:-1] + b',"id":"last"}'
    hidden = rest[:-1] + b',"i\\u0064":"last"}'
    for _ in range(2):
        for opening, tail, expected in (
            (b'{"id":"a",', rest, b'"id":"a",'),
            (b'{"id":"b",', rest, b'"id":"b",'),
            (b'{"id": "c c", ', rest, b'"id":"c c",'),
            (b'{"id":"",', rest, b'"id":"",'),
            (b'{"id":"\xc3\xa9",', rest, '"id":"é",'.encode()),
            (b'{"id":"\\"",', rest, b'"id":"\\"",'),
            (b"{", rest, b""),
            (b'{"id":"a",', twice, b'"id":"last",'),
            (b'{"id":"b",', twice, b'"id":"last",'),
            (b'{"id":"a",', hidden, b'"id":"last",'),
            (b'{"id":"b",', hidden, b'"id":"last",'),
        ):
            text = opening + tail
            assert model.requests.parse(text + ONE_TWO, len(text)).requested.id == expected
        for opening in (b'{"id":"a\n",', b'{"id":"\xff",', b'{"id":"a",,', b'{"id":5,'):
            text = opening + rest
            with pytest.raises(InvalidRequest):
                model.requests.parse(text + ONE_TWO, len(text))


@pytest.mark.parametrize(
    ("priority", "level"),
    [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 3),
        ((1 << 64) - 1, 3),
        (None, 0),
        ("interactive", 1),
        ("normal", 2),
        ("bulk", 3),
        ("Bulk", 3),
    ],
)
def test_a_priority_is_a_level_or_a_class(priority: Any, level: int) -> None:
    request = {"inputs": pair(), "parameters": {"priority": priority}}
    text = json.dumps(request).encode()
    for _ in range(2):
        assert PAIR.requests.parse(text, None).requested.level == level
    assert PAIR.requests.parse(json.dumps({"inputs": pair()}).encode(), None).requested.level == 0


def test_a_remembered_text_keeps_its_priority_beside_another_id() -> None:
    model = codec([X], [Y])
    for number in range(3):
        inputs = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [number, 2]}]
        body = {"id": f"id-{number}", "inputs": inputs, "parameters": {"priority": 3}}
        requested = model.requests.parse(json.dumps(body).encode(), None).requested
        assert requested.id == b'"id":"id-%d",' % number
        assert requested.level == 3


PARTED = V2Model(replace(spec(0, [X], [Y]), in_parts=True))
FIRST, GAP = "first_part_timeout_s", "part_gap_timeout_s"


@pytest.mark.parametrize(
    ("parameters", "limits"),
    [
        ({}, (0, 0)),
        ({FIRST: 2}, (2_000_000_000, 0)),
        ({GAP: 0.25, FIRST: None}, (0, 250_000_000)),
        ({FIRST: "0.5", GAP: "5e-05"}, (500_000_000, 50_000)),
        ({FIRST: 1e30, GAP: 1e-300}, (10**18, 1)),
    ],
)
def test_limits_of_parts_are_parameters(
    parameters: dict[str, Any], limits: tuple[int, int]
) -> None:
    inputs = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]
    text = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    for _ in range(2):
        requested = PARTED.requests.parse(text, None).requested
        assert requested.limits == limits
    encoded = orjson.loads(orjson.dumps(encode_requested(requested)))
    assert decode_requested(encoded) == requested
    # No answer of such a model has parts.
    assert codec([X], [Y]).requests.parse(text, None).requested.limits == (0, 0)


@pytest.mark.parametrize("value", [0, -1, True, "soon", "", "0"])
@pytest.mark.parametrize("name", [FIRST, GAP])
def test_a_limit_of_parts_that_is_none_is_refused(name: str, value: Any) -> None:
    inputs = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]
    body = json.dumps({"inputs": inputs, "parameters": {name: value}}).encode()
    words = f'parameter "{name}" is {json.dumps(value)}, not a number of seconds above 0'
    with pytest.raises(InvalidRequest) as refused:
        PARTED.requests.parse(body, None)
    assert str(refused.value) == words


def test_a_timeout_is_in_microseconds() -> None:
    request = {"inputs": pair(), "parameters": {"timeout": 1500}}
    assert PAIR.requests.parse(json.dumps(request).encode(), None).requested.timeout_ns == 1_500_000
