"""The generate extension: bodies to V2's requests, and V2's answers to its own."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from segment_fixture import spec

from ringbatch.frontend.v2.generate import GenerateRendering, body_of, infer_request
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor


def of(shape: list[int], datatype: str = "INT64", **more: Any) -> ModelSpec:
    """A model with one input and one output of that shape, both named x."""
    tensor = Tensor("x", datatype, shape)
    return spec(0, [tensor], [tensor], **more)


@pytest.mark.parametrize(
    ("shape", "value", "found", "data"),
    [
        # A single value, and lists of one element.
        ([], 5, [1], [5]),
        ([1], 5, [1, 1], [5]),
        ([1], [5], [1, 1], [5]),
        ([1, 1], 5, [1, 1, 1], [5]),
        ([-1], 5, [1, 1], [5]),
        # Flat lists.
        ([], [5, 6, 7], [3], [5, 6, 7]),
        ([1], [5, 6, 7], [3, 1], [5, 6, 7]),
        ([2], [5, 6], [1, 2], [5, 6]),
        ([2], [5, 6, 7, 8], [2, 2], [5, 6, 7, 8]),
        ([2, 2], [5, 6, 7, 8], [1, 2, 2], [5, 6, 7, 8]),
        ([-1], [5, 6, 7], [1, 3], [5, 6, 7]),
        ([-1], [], [1, 0], []),
        ([-1, 2], [5, 6, 7, 8], [1, 2, 2], [5, 6, 7, 8]),
        ([2, -1], [5, 6, 7, 8], [1, 2, 2], [5, 6, 7, 8]),
        ([-1, -1], [5, 6, 7], [1, 1, 3], [5, 6, 7]),
        # Nested lists: an instance, or several.
        ([], [[5]], None, "has 2 levels of lists; give 0, or 1 for several instances, or one flat"),
        ([2], [[5, 6], [7, 8]], [2, 2], [[5, 6], [7, 8]]),
        ([-1], [[5], [7]], [2, 1], [[5], [7]]),
        ([-1], [[], []], [2, 0], [[], []]),
        ([-1, 2], [[5, 6], [7, 8], [9, 9]], [1, 3, 2], [[5, 6], [7, 8], [9, 9]]),
        ([-1, 2], [[[5, 6]], [[7, 8]]], [2, 1, 2], [[[5, 6]], [[7, 8]]]),
        ([2], [[5], [6, 7]], None, 'the lists of input "x" differ in length'),
        ([2], [[5, 6], 7], None, 'input "x" has lists and single values side by side'),
        ([2], [5, [6]], None, 'input "x" has lists and single values side by side'),
        ([2, 2], [[[[5]]]], None, "has 4 levels of lists; give 2, or 3 for several instances"),
        ([2, 2], json.loads("[" * 900 + "]" * 900), None, "has 900 levels of lists"),
        # What fits no instance is the reader's to refuse.
        ([2], [5, 6, 7], [1, 2], [5, 6, 7]),
        ([0], [], [1, 0], []),
        ([-1, 2], [5, 6, 7], [1, 1, 2], [5, 6, 7]),
    ],
)
def test_an_input_has_the_shape_of_its_lists_or_fills_the_declared_one(
    shape: list[int], value: Any, found: list[int] | None, data: Any
) -> None:
    if found is None:
        assert data in refused({"x": value}, of(shape))
        return
    entry = {"name": "x", "datatype": "INT64", "shape": found, "data": data}
    assert infer_request({"x": value}, of(shape))["inputs"] == [entry]


@pytest.mark.parametrize(
    ("shape", "value", "found"),
    [
        ([], 5, []),
        ([2], [5, 6], [2]),
        ([-1], [5, 6, 7], [3]),
        ([2, 1], [[5], [6]], [2, 1]),
        ([2, 1], [[[5], [6]]], "has 3 levels of lists; give 2, or one flat list"),
    ],
)
def test_without_a_batch_dimension_there_is_one_instance(
    shape: list[int], value: Any, found: Any
) -> None:
    unbatched = of(shape, max_batch_size=0)
    if isinstance(found, str):
        assert found in refused({"x": value}, unbatched)
    else:
        (entry,) = infer_request({"x": value}, unbatched)["inputs"]
        assert entry["shape"] == found


def refused(body: Any, model: ModelSpec) -> str:
    with pytest.raises(InvalidRequest) as error:
        infer_request(body, model)
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "identity", "parameters"),
    [
        ({"x": 5}, None, {}),
        ({"x": 5, "id": "7", "parameters": None, "seed": None}, "7", {}),
        ({"x": 5, "timeout": 9, "parameters": {"top_k": 2}}, None, {"timeout": 9, "top_k": 2}),
        ({"parameters": {"x": 5, "id": "7", "parameters": 3}}, None, {"id": "7", "parameters": 3}),
        ({"x": 5, "binary_data_output": False}, None, {"binary_data_output": False}),
    ],
)
def test_other_members_are_parameters(body: Any, identity: Any, parameters: Any) -> None:
    request = infer_request(body, of([]))
    assert (request["id"], request["parameters"]) == (identity, parameters)
    assert [entry["data"] for entry in request["inputs"]] == [[5]]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([5], "the request is a list, not an object"),
        ({"x": 5, "parameters": [1]}, "the parameters of the request are a list, not an object"),
        ({"x": 5, "parameters": {"x": 6}}, '"x" stands in the request twice'),
        ({"x": 5, "k": 1, "parameters": {"k": 1}}, '"k" stands in the request twice'),
        ({"x": 5, "stop": ["a"]}, 'parameter "stop" of the request is a list; a parameter is'),
        ({"inputs": [{"name": "x"}]}, "`inputs` are for /infer; here each input is a member"),
        ({"x": 5, "binary_data_output": True}, 'parameter "binary_data_output" is for /infer'),
    ],
)
def test_an_ambiguous_body_is_refused(body: Any, text: str) -> None:
    assert text in refused(body, of([]))


def test_inputs_may_have_the_names_of_other_members() -> None:
    tensors = [Tensor("id", "INT64", []), Tensor("parameters", "INT64", [-1])]
    request = infer_request({"id": 5, "parameters": [1, 2]}, spec(0, tensors, tensors))
    assert request["id"] is None
    assert [entry["data"] for entry in request["inputs"]] == [[5], [1, 2]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2, 3], 'input "x" has 3 elements, but shape [1, 2] has 2'),
        ([1, "a"], 'data[1] is "a", but'),
        ([1, 1 << 64], "data[1] is 18446744073709551616, but"),
        ({"b64": "YQ=="}, "has 1 elements, but shape [1, 2] has 2"),
    ],
)
def test_values_are_refused_in_the_words_of_v2(value: Any, text: str) -> None:
    model = of([2])
    body = json.dumps({"x": value}).encode()
    with pytest.raises(InvalidRequest) as error:
        V2Model(model).requests.read(infer_request({"x": value}, model), body)
    assert text in str(error.value)


def test_a_model_without_tensors_names_the_path_of_v1() -> None:
    untyped = spec(0, [], [])
    with pytest.raises(InvalidRequest, match="use /v1/models/NAME:predict"):
        V2Model(untyped).requests.read(infer_request({"instances": [1]}, untyped), b"")


def test_a_request_is_read_alike_from_an_object_and_from_a_text() -> None:
    model = replace(of([2]), words=("x-tenant",))
    asked = V2Model(model).asked
    assert asked is not None
    request = infer_request({"x": [[1, 2], [3, 4]], "k": 2, "id": "7"}, model)
    headers = b"POST / HTTP/1.1\r\nx-tenant: blue\r\n\r\n"
    found = asked.with_headers(headers).read(request, b"")
    assert found == asked.with_headers(headers).parse(json.dumps(request).encode(), None)
    assert found != asked.read(request, b"")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("text=a+b&n=2", {"text": "a b", "n": 2}),
        ("text=7&n=7", {"text": "7", "n": 7}),
        ("n=1&n=2&text=", {"n": [1, 2], "text": ""}),
        ("n=[1,2]&text=a&text=b", {"n": [1, 2], "text": ["a", "b"]}),
        ("temperature=0.5&stop=[&greedy=true&id=7", None),
        ("n=NaN&n=%C3%A4", {"n": ["NaN", "\u00e4"]}),
        ("", {}),
    ],
)
def test_a_query_stands_for_a_body(query: str, found: Any) -> None:
    model = spec(0, [Tensor("text", "BYTES", []), Tensor("n", "INT64", [])], [])
    body = body_of(parse_qsl(query, keep_blank_values=True), model)
    others = {"temperature": 0.5, "stop": "[", "greedy": True, "id": "7"}
    assert json.loads(body) == (others if found is None else found)


@pytest.mark.parametrize(
    ("outputs", "values", "found"),
    [
        ({"y": []}, [[[2.5]]], {"y": 2.5}),
        ({"y": [-1]}, [[[[2.5]]]], {"y": 2.5}),
        ({"y": [2]}, [[[[2, 3.5]]]], {"y": [2.0, 3.5]}),
        ({"y": [2, 1]}, [[[[[2], [3]]]]], {"y": [2.0, 3.0]}),
        ({"y": [-1]}, [[[[]]]], {"y": []}),
        ({"y": []}, [[[2, 3]]], {"y": [2.0, 3.0]}),
        # The parts of a request end to end, and several outputs.
        ({"y": []}, [[[2]], [[3, 4]]], {"y": [2.0, 3.0, 4.0]}),
        ({"y": [-1], "z": []}, [[[[2, 3]], [0.1]]], {"y": [2.0, 3.0], "z": 0.1}),
        # An output goes before a member of the answer with its name.
        ({"id": [], "model_version": []}, [[[2], [3]]], {"id": 2.0, "model_version": 3.0}),
    ],
)
def test_an_output_of_one_element_is_that_element(
    outputs: dict[str, list[int]], values: list[list[Any]], found: Any
) -> None:
    model = spec(
        0,
        [Tensor("x", "INT64", [])],
        [Tensor(name, "FP64", shape) for name, shape in outputs.items()],
    )
    requests = V2Model(model)
    _, requested = requests.requests.read(infer_request({"x": 1, "id": "7"}, model), b"")
    results = [result(model, arrays) for arrays in values]
    rendering = GenerateRendering(V2Rendering(requests.answers, requested))
    status, body, headers = rendering.render(results, "b")
    beside = {"id": "7", "model_name": model.name, "model_version": "1"}
    assert (status, json.loads(body)) == (200, beside | found)
    assert ("x-batch-id", "b") in [(name.lower(), value) for name, value in headers]
    assert body.count(b'"model_version":') == body.count(b'"id":') == 1


def result(model: ModelSpec, arrays: list[Any]) -> tuple[int, memoryview]:
    """Rows of outputs as a worker writes them."""
    columns = [np.array(array, float) for array in arrays]
    rows, frame = len(columns[0]), Frame(model.outputs)
    dimensions = tuple(
        size
        for tensor, column in zip(model.outputs, columns, strict=True)
        for size, declared in zip(column.shape[1:], tensor.shape, strict=True)
        if declared < 0
    )
    placement = frame.place(rows, dimensions)
    memory = bytearray(placement.size)
    memory[: frame.prefix_bytes] = frame.prefix(dimensions, ())
    for part, column in zip(placement.parts, columns, strict=True):
        memory[part.offset : part.offset + part.size] = column.tobytes()
    return rows, memoryview(memory)
