"""Refusals of the V2 codec, and their texts."""

import codecs
import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import pack, spec
from v2_models import (
    ADDONE,
    ECHO,
    FLAGS,
    HALF,
    ONE_TWO,
    OPEN,
    PAIR,
    STRINGS,
    T7,
    T8,
    T11,
    T12,
    X,
    Y,
    codec,
    pair,
    rendered,
)

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.tensor import Tensor


def refusal(
    model: V2Model,
    body: bytes,
    json_bytes: int | None = None,
    kind: type[Exception] = InvalidRequest,
) -> str:
    with pytest.raises(kind) as refused:
        model.requests.parse(body, json_bytes)
    return str(refused.value)


def x(**changes: Any) -> bytes:
    """A request to `addone`, with some members of its input changed or, where None, left out."""
    entry = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | changes
    return json.dumps({"inputs": [{k: v for k, v in entry.items() if v is not None}]}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the request is no JSON: it is empty"),
        (b"nope", "the request is no JSON"),
        (b"\xff", "byte 0 is not UTF-8"),
        (codecs.BOM_UTF8 + x(), "the request is no JSON: it begins with a byte order mark (BOM, "),
        (x().decode().encode("utf-16-le"), "it is UTF-16 or UTF-32, but JSON is UTF-8"),
        (b"[1]", "the request is a list, not an object"),
        (b"7", "the request is 7, not an object"),
        (b'"x"', 'the request is "x", not an object'),
        (b"{}", "the request lacks `inputs`"),
        (
            b'{"instances":[[1,2]]}',
            "which is a list of tensors; `instances` are for V1, at /v1/models/NAME:predict",
        ),
        (b'{"inputs":{}}', "has an object as `inputs`"),
        (b'{"inputs":[]}', 'lacks input "x"; model "addone" takes "x"'),
        (b'{"inputs":[5]}', "inputs[0] is 5, not an object"),
        (x(name=None), "inputs[0] lacks its name"),
        (x(name=5), "inputs[0] has 5 as its name"),
        (x(name=""), 'inputs[0] is "", but model "addone" takes "x"'),
        (
            b'{"inputs":[%b,%b]}' % (x()[12:-2], x(name="z")[12:-2]),
            'inputs[1] is "z", but model "addone" takes "x"',
        ),
        (
            b'{"inputs":[%b,%b]}' % (x(name="z")[12:-2], x()[12:-2]),
            'input "x" stands in the request twice',
        ),
        (b'{"inputs":[%b,%b]}' % ((x()[12:-2],) * 2), 'input "x" stands in the request twice'),
        (x(datatype=None), 'input "x" has no datatype'),
        (x(datatype="FP64"), 'input "x" is FP64, but model "addone" takes FP32 of shape [-1, 2]'),
        (x(datatype="fp32"), 'has datatype "fp32", which there is not'),
        (x(datatype=5), "has datatype 5, which there is not"),
        (x(shape=None), 'input "x" has no shape'),
        (x(shape=2), "has 2 as its shape"),
        (x(shape=[1, 2.0]), "a shape is a list of whole numbers"),
        (x(shape=[True, 2]), "a shape is a list of whole numbers"),
        (x(shape=["1", 2]), 'has ["1", 2] as its shape; a shape is a list of whole numbers'),
        (x(shape=["1" * 5000] * 5000), '1"..., ...] as its shape; a shape is'),
        (x(shape=[]), 'has shape [], but model "addone" takes FP32 of shape [-1, 2]'),
        (x(shape=[2]), "has shape [2], but"),
        (x(shape=[1, 2, 1]), "has shape [1, 2, 1], but"),
        (x(shape=[1, 3], data=[1, 2, 3]), "has shape [1, 3], but"),
        (x(shape=[1, -2]), "has [1, -2] as its shape; a shape is a list of whole numbers from 0"),
        (x(shape=[-1, 2]), "has [-1, 2] as its shape; a shape is a list of whole numbers from 0"),
        (x(shape=[1 << 43, 2]), "has shape [8796093022208, 2], which is too large"),
        (x(shape=[1 << 63, 2]), "which is too large"),
        (x(data=None), "neither data nor a binary_data_size"),
        (x(data=5), "has 5; its values are a list"),
        (x(data="ab"), 'has "ab"; its values are a list'),
        (x(data={"a": 1}), "has an object; its values are a list"),
        (x(data=[1]), 'input "x" has 1 elements, but shape [1, 2] has 2'),
        (x(data=[1, 2, 3]), "has 3 elements, but shape [1, 2] has 2"),
        (x(data=[[1, 2], [3, 4]]), "has 4 elements, but shape [1, 2] has 2"),
        (x(shape=[2, 2], data=[[1, 2]]), "has 2 elements, but shape [2, 2] has 4"),
        (x(data=[[1], 2]), "has lists and single values side by side"),
        (x(data=[1, [2]]), "data[1] is a list, but"),
        (x(data=[1, "a"]), 'data[1] is "a", but input "x" of model "addone" takes FP32'),
        (x(data=[[1, "2"]]), 'data[1] is "2", but'),
        (x(data=[1, None]), "data[1] is null, but"),
        (x(data=[True, 2]), "data[0] is true, but"),
        (x(data=[1, {}]), "data[1] is an object, but"),
        (x(data=[1, 1e300]), "data[1] is 1e+300, but"),
        (x().replace(b"[1, 2]}", b"[1, NaN]}"), "NaN is no JSON number"),
        (x(parameters=[]), 'the parameters of input "x" are a list, not an object'),
        (x(parameters={"a": []}), 'parameter "a" of input "x" is a list'),
        (x(parameters={"a": [1]}), 'parameter "a" of input "x" is a list'),
        (x(parameters={"binary_data_size": 8}), "has both data and a binary_data_size"),
        (x(data=None, parameters={"binary_data_size": 8}), "says that 8 bytes of binary data"),
        (x(data=None, parameters={"binary_data_size": -8}), "is -8, not a whole number"),
        (x(data=None, parameters={"binary_data_size": 8.0}), "is 8.0, not a whole number"),
        (x(data=None, parameters={"binary_data_size": "8"}), 'is "8", not a whole number'),
        (x(data=None, parameters={"binary_data_size": True}), "is true, not a whole number"),
        (x(data=None, parameters={"binary_data_size": 12}), "of shape [1, 2] takes 8"),
    ],
)
def test_a_request_that_is_none_is_refused_in_words(body: bytes, text: str) -> None:
    found = refusal(ADDONE, body)
    assert text in found
    assert len(found) < 1000


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"id": 5}, "the request's id is 5, not a string"),
        ({"parameters": 5}, "the parameters of the request are 5, not an object"),
        ({"parameters": {"a": {}}}, 'parameter "a" of the request is an object'),
        ({"parameters": {"triton_x": 1}}, 'parameter "triton_x" is reserved'),
        ({"parameters": {"headers": "x"}}, 'parameter "headers" is reserved'),
        ({"parameters": {"binary_data_output": 1}}, '"binary_data_output" is 1, not true or'),
        ({"parameters": {"sequence_start": 1}}, '"sequence_start" is 1, not true or false'),
        ({"parameters": {"priority": -1}}, '"priority" is -1, not a whole number'),
        ({"parameters": {"priority": 1.0}}, '"priority" is 1.0, not a whole number'),
        ({"parameters": {"priority": True}}, '"priority" is true, not a whole number'),
        ({"parameters": {"priority": "urgent"}}, "nor interactive, normal or bulk"),
        ({"parameters": {"priority": 1 << 64}}, "nor interactive, normal or bulk"),
        ({"parameters": {"timeout": 1.5}}, '"timeout" is 1.5, not a whole number'),
        ({"parameters": {"timeout": True}}, '"timeout" is true, not a whole number'),
        ({"outputs": {}}, "`outputs` is an object, not a list"),
        ({"outputs": ["y"]}, 'outputs[0] is "y", not an object'),
        ({"outputs": [{}]}, "outputs[0] lacks its name"),
        ({"outputs": [{"name": 1}]}, "outputs[0] has 1 as its name"),
        ({"outputs": [{"name": "x"}]}, 'outputs[0] is "x", but model "addone" gives "y"'),
        ({"outputs": [{"name": "y"}] * 2}, 'output "y" is wanted twice'),
        ({"outputs": [{"name": "y", "parameters": 1}]}, 'parameters of output "y" are 1'),
        (
            {"outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]},
            '"binary_data" is "yes", not true or false',
        ),
    ],
)
def test_wrong_members_beside_the_inputs_are_refused_in_words(
    members: dict[str, Any], text: str
) -> None:
    body = json.dumps(json.loads(x()) | members).encode()
    assert text in refusal(ADDONE, body)


@pytest.mark.parametrize(
    ("entry", "members", "text"),
    [
        ({"parameters": {"shared_memory_region": "r"}}, {}, "is switched off here"),
        (
            {},
            {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
            "is switched off here",
        ),
    ],
)
def test_an_unsupported_feature_is_refused_as_such(
    entry: dict[str, Any], members: dict[str, Any], text: str
) -> None:
    body = json.dumps(json.loads(x(**entry)) | members).encode()
    assert text in refusal(ADDONE, body, kind=NotSupported)


@pytest.mark.parametrize(
    ("body", "json_bytes", "text"),
    [
        (T8 + ONE_TWO[:-1], 134, "7 bytes follow the JSON text, but its inputs say 8"),
        (T8 + ONE_TWO + b"x", 134, "9 bytes follow the JSON text, but its inputs say 8"),
        (T8 + ONE_TWO, 143, "is 143, but the body has 142 bytes"),
        (T8 + ONE_TWO, None, "the request is no JSON"),
        (T8 + ONE_TWO, 133, "the request is no JSON"),
        (T8, None, "says that 8 bytes of binary data follow"),
        (T8.replace(b":8}", b":12}") + bytes(12), 135, "of shape [1, 2] takes 8"),
        (T8.replace(b"[1,2]", b"[1,3]") + bytes(12), 134, "has shape [1, 3], but"),
        (T8.replace(b"FP32", b"FP64") + bytes(16), 134, "is FP64, but"),
        (ONE_TWO + b"x", 0, "the body has 9 bytes, but"),
        (b"", 0, "the body has 0 bytes, but"),
    ],
)
def test_wrong_lengths_are_refused_in_words(body: bytes, json_bytes: int | None, text: str) -> None:
    for _ in range(2):
        assert text in refusal(ADDONE, body, json_bytes)


@pytest.mark.parametrize(
    ("data", "shape", "text"),
    [
        (STRINGS, [2], "it has 6 bytes more than its 2 elements take"),
        (STRINGS, [4], "its bytes end before element 3 of 4"),
        (STRINGS[:-6] + b"\3" + STRINGS[-5:], [3], "element 2 is said to be longer"),
        (b"\xff\xff\xff\xff" + STRINGS[4:], [3], "element 0 is said to be longer"),
        (STRINGS[:3] + bytes(13), [1], "it has 10 bytes more"),
        (bytes(16), [3], "it has 4 bytes more"),
    ],
)
def test_lengths_of_strings_that_lie_are_refused(data: bytes, shape: list[int], text: str) -> None:
    body = T11.replace(b"[3]", json.dumps(shape).encode()) + data
    assert text in refusal(ECHO, body, 93)


@pytest.mark.parametrize("value", [5, None, True, ["a"], {"b64": "YQ=="}])
def test_strings_are_nothing_but_strings(value: Any) -> None:
    body = {"inputs": [{"name": "s", "shape": [2], "datatype": "BYTES", "data": ["a", value]}]}
    assert "data[1] is" in refusal(ECHO, json.dumps(body).encode())


@pytest.mark.parametrize("value", [2, "true", None, 0, 1.0])
def test_booleans_are_nothing_but_booleans(value: Any) -> None:
    body = {"inputs": [{"name": "f", "shape": [1, 2], "datatype": "BOOL", "data": [True, value]}]}
    assert "data[1] is" in refusal(FLAGS, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("UINT8", [256, -1, 1.0, 1.5, "1", True]),
        ("INT8", [128, -129]),
        ("INT32", [1 << 31]),
        ("UINT64", [-1, 1 << 64]),
        ("INT64", [1 << 63, 1 << 64, -(1 << 63) - 1, 1e3]),
        ("FP32", [1e39, 10**39]),
    ],
)
def test_numbers_beyond_a_datatype_are_refused(name: str, values: list[Any]) -> None:
    model = codec([Tensor("x", name, [])])
    for value in values:
        entry = {"name": "x", "shape": [1], "datatype": name, "data": [value]}
        text = json.dumps({"inputs": [entry]}).encode()
        assert f"data[0] is {json.dumps(value)}, but" in refusal(model, text)
        assert f"data[0] is {json.dumps(value)}, but" in refusal(model, text, len(text))


def test_half_precision_is_no_json_in_either_direction() -> None:
    as_json = b'{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","data":[1,-2]}]}'
    assert 'input "h" is FP16, which V2 does not carry as JSON' in refusal(HALF, as_json)
    text = T12.replace(b"true", b"false")
    words = refusal(HALF, text + bytes(4), len(text))
    assert 'output "h" is FP16' in words
    assert words.endswith("ask for binary data, in one answer of /infer")
    listed_output = json.dumps(
        json.loads(T12) | {"parameters": {}, "outputs": [{"name": "h"}]}
    ).encode()
    assert 'output "h" is FP16' in refusal(HALF, listed_output + bytes(4), len(listed_output))


def test_inputs_that_differ_in_their_rows_are_refused() -> None:
    body = {"inputs": pair(shape=[2], data=[1, 2])}
    assert "the first sizes of the shapes differ: 2, 1" in refusal(PAIR, json.dumps(body).encode())


def test_a_missing_input_is_named() -> None:
    body = {"inputs": pair()[:1]}
    assert 'lacks input "b"; model "m" takes "a", "b"' in refusal(PAIR, json.dumps(body).encode())


def test_no_instances_are_refused_where_the_answer_would_have_no_shape() -> None:
    body = b'{"inputs":[{"name":"x","shape":[0,1,2],"datatype":"INT64","data":[]}]}'
    assert "no instances" in refusal(OPEN, body)


def test_instances_that_cost_nothing_are_no_way_to_ask_for_endless_work() -> None:
    body = b'{"inputs":[{"name":"x","shape":[%d,0,2],"datatype":"INT64","data":[]}]}'
    assert "instances without any element" in refusal(OPEN, body % (1 << 40))
    assert len(OPEN.requests.parse(body % 32, None).parts) == 1
    beside_a_zero = b'{"inputs":[{"name":"x","shape":[1,%d,2],"datatype":"INT64","data":[]}]}'
    assert "too large" in refusal(OPEN, beside_a_zero % (1 << 60))


@pytest.mark.parametrize(
    ("tensors", "body", "text"),
    [
        ([Tensor("x", "FP32", [-1, -1])], bytes(8), "gives no shape"),
        ([Tensor("x", "FP32", [-1, 2])], bytes(12), "takes a multiple of 8"),
        ([Tensor("x", "FP32", [-1, 0])], b"", "takes a multiple of 0"),
        ([Tensor("x", "BYTES", [2])], b"ab", "is one string"),
        ([X, Y], bytes(16), "which are 2"),
    ],
)
def test_a_raw_body_must_say_enough(tensors: list[Tensor], body: bytes, text: str) -> None:
    assert text in refusal(codec(tensors), body, 0)


def test_a_model_without_declared_inputs_says_where_to_go() -> None:
    assert "declares no inputs" in refusal(V2Model(spec()), T7)


@given(st.binary(max_size=60), st.none() | st.integers(0, 70))
def test_no_body_does_more_than_be_refused(body: bytes, json_bytes: int | None) -> None:
    for model in (ADDONE, ECHO, HALF, OPEN, PAIR, FLAGS):
        with suppress(InvalidRequest):
            model.requests.parse(body, json_bytes)


@given(st.data())
def test_no_change_of_a_member_does_more_than_be_refused(data: st.DataObject) -> None:
    request = json.loads(T8) | {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    odd = st.sampled_from(
        [None, True, 0, -1, 1.5, "", "x", [], {}, [1], ["x"], [None], {"a": 1}, [[1]], 1 << 70]
    )
    spots: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            spots.append((value, key))
            if isinstance(value[key], dict | list):
                visit(value[key])

    visit(request)
    for _ in range(data.draw(st.integers(1, 3))):
        owner, key = data.draw(st.sampled_from(spots))
        owner[key] = data.draw(odd)
    text = json.dumps(request).encode()
    for body, json_bytes in ((text + ONE_TWO, len(text)), (text, None)):
        with suppress(InvalidRequest, NotSupported):
            parsed = ADDONE.requests.parse(body, json_bytes)
            assert sum(len(part.payload) for part in parsed.parts) in (0, 8)


def test_numbers_that_json_lacks_are_to_be_asked_for_as_bytes() -> None:
    for value in (np.nan, np.inf, -np.inf):
        result = np.array([1, value], "<f4").tobytes()
        with pytest.raises(
            InvalidRequest, match=r"NaN or Infinity.*ask for binary data, in one answer of /infer"
        ):
            rendered(ADDONE, ADDONE.requests.parse(T7, None), result)
        request = ADDONE.requests.parse(T8 + ONE_TWO, len(T8))
        assert rendered(ADDONE, request, result).body.endswith(result)


def test_strings_that_json_lacks_are_to_be_asked_for_as_bytes() -> None:
    frame, _ = pack([Tensor("s", "BYTES", [])], [np.array([b"\xff", b"", b""], object)])
    request = ECHO.requests.parse(T11 + STRINGS, 93)
    with pytest.raises(
        InvalidRequest, match=r"not UTF-8.*ask for binary data, in one answer of /infer"
    ):
        rendered(ECHO, request, frame)


@pytest.mark.parametrize("result", [b"", bytes(7), bytes(9), bytes(16)])
def test_a_result_of_another_size_is_the_models_failure(result: bytes) -> None:
    for request in (ADDONE.requests.parse(T7, None), ADDONE.requests.parse(T8 + ONE_TWO, len(T8))):
        with pytest.raises(ModelFailed, match="does not fit"):
            rendered(ADDONE, request, result)


def test_a_string_result_that_lies_is_the_models_failure() -> None:
    words = len(STRINGS).to_bytes(8, "little").ljust(64, b"\0")
    request = ECHO.requests.parse(T11 + STRINGS, 93)
    with pytest.raises(ModelFailed, match="lengths of the strings"):
        rendered(ECHO, request, words + b"\xff" + STRINGS[1:])


def test_parts_that_differ_in_their_open_dimensions_are_the_models_failure() -> None:
    model = codec([X], [Tensor("y", "FP32", [-1])], cap=1)
    given = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
    results = [
        pack([Tensor("y", "FP32", [-1])], [np.zeros((1, size), "<f4")])[0] for size in (1, 2)
    ]
    for parameters in ({}, {"classification": 1}):
        wanted = {"inputs": [given], "outputs": [{"name": "y", "parameters": parameters}]}
        request = model.requests.parse(json.dumps(wanted).encode(), None)
        with pytest.raises(ModelFailed, match="differ in shape"):
            rendered(model, request, *results)
