"""Leniency of V2: the name of a single input, convertible datatypes, and null members.

Tests frontend/v2/converted_input.py.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from segment_fixture import spec

from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import requests_of as grpc_requests_of
from ringbatch.frontend.v2.protocol import InferRequest, requests_of
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

VALUES = np.array([[0.1, -2.5], [1e4, 3.0]])
DTYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


def model(datatype: str, platform: str = "python", inputs: int = 1) -> ModelSpec:
    tensors = [Tensor(f"x{number}", datatype, [2]) for number in range(inputs)]
    return replace(spec(0, tensors, tensors), platform=platform)


def over_rest(
    given: ModelSpec, datatype: str, *, binary: bool, name: str = "x0"
) -> list[InferRequest]:
    """Parse a request three times, so that the codec may remember it from the first time."""
    values = VALUES.astype(DTYPES[datatype])
    entry: dict[str, Any] = {"name": name, "shape": [2, 2], "datatype": datatype}
    requests = requests_of(given)
    if binary:
        entry["parameters"] = {"binary_data_size": values.nbytes}
        text = json.dumps({"inputs": [entry]}).encode()
        found = [requests.parse(text + values.tobytes(), len(text)) for _ in range(3)]
        outline = requests.outline(text, values.nbytes)
        assert (outline is None) == (datatype != given.inputs[0].datatype.name)
        return found
    entry["data"] = VALUES.tolist()
    body = json.dumps({"inputs": [entry]}, separators=(",", ":")).encode()
    return [requests.parse(body, None) for _ in range(3)]


def over_grpc(given: ModelSpec, datatype: str, *, typed: bool) -> Any:
    values = VALUES.astype(DTYPES[datatype])
    entry: dict[str, Any] = {"name": "x0", "shape": [2, 2], "datatype": datatype}
    message = inference("ModelInferRequest")
    if typed:
        field = {"FP32": "fp32_contents", "FP64": "fp64_contents"}[datatype]
        entry["contents"] = {field: VALUES.reshape(-1).tolist()}
        return grpc_requests_of(given).read(message(inputs=[entry]))
    raw = [values.tobytes()]
    return grpc_requests_of(given).read(message(inputs=[entry], raw_input_contents=raw))


CONVERTED = [
    ("FP32", "FP64", "python"),
    ("FP32", "FP64", "sklearn"),
    ("FP64", "FP32", "sklearn"),
]


@pytest.mark.parametrize(("came", "taken", "platform"), CONVERTED)
def test_floats_are_converted_to_the_models_datatype(came: str, taken: str, platform: str) -> None:
    given = model(taken, platform)
    expected = VALUES.astype(DTYPES[came]).astype(DTYPES[taken]).tobytes()
    requests = [
        *over_rest(given, came, binary=False),
        *over_rest(given, came, binary=True),
        over_grpc(given, came, typed=True),
        raw := over_grpc(given, came, typed=False),
    ]
    for request in requests:
        ((rows, payload, _),) = request.parts
        assert (rows, bytes(payload)) == (2, expected)
    assert not raw.as_it_is
    assert over_grpc(given, taken, typed=False).as_it_is


def test_halves_are_made_wider_too() -> None:
    expected = VALUES.astype("<f2").astype("<f4").tobytes()
    for request in over_rest(model("FP32"), "FP16", binary=True):
        assert bytes(request.parts[0].payload) == expected
    with pytest.raises(InvalidRequest, match="FP16, which V2 does not carry as JSON"):
        over_rest(model("FP32"), "FP16", binary=False)


@pytest.mark.parametrize(
    ("came", "taken", "platform"),
    [("FP64", "FP32", "python"), ("FP64", "FP32", "onnx"), ("FP32", "FP16", "sklearn")],
)
def test_a_lossy_conversion_is_refused(came: str, taken: str, platform: str) -> None:
    with pytest.raises(InvalidRequest, match=f"is {came}, but model"):
        over_rest(model(taken, platform), came, binary=True)


def test_a_model_with_one_input_takes_any_name() -> None:
    for binary in (False, True):
        for request in over_rest(model("FP32"), "FP32", binary=binary, name="input-0"):
            assert bytes(request.parts[0].payload) == VALUES.astype("<f4").tobytes()


def test_one_with_several_takes_their_own() -> None:
    with pytest.raises(InvalidRequest, match=r'inputs\[0\] is "input-0", but model "m" takes "x0"'):
        over_rest(model("FP32", inputs=2), "FP32", binary=True, name="input-0")


def test_members_that_are_null_are_as_if_they_were_not_there() -> None:
    entry = {"name": "x0", "shape": [1, 2], "datatype": "FP32"}
    nothing = {"headers": None, "sequence_id": None, "timeout": None, "content_type": None}
    body: dict[str, Any] = {
        "id": None,
        "parameters": nothing,
        "inputs": [entry | {"parameters": nothing, "data": [1, 2]}],
        "outputs": [{"name": "x0", "parameters": nothing, "data": None}],
    }
    request = requests_of(model("FP32")).parse(json.dumps(body).encode(), None)
    plain = {"inputs": [entry | {"data": [1, 2]}]}
    assert request == requests_of(model("FP32")).parse(json.dumps(plain).encode(), None)
    body["inputs"] = [entry | {"parameters": {"binary_data_size": 8}, "data": None}]
    text = json.dumps(body).encode()
    assert requests_of(model("FP32")).parse(text + bytes(8), len(text)).parts[0].rows == 1
