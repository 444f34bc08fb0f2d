"""Models for tests of the V2 codec, and what their requests and answers look like."""

from collections.abc import Sequence
from typing import Any

from segment_fixture import spec

from ringbatch.frontend.v2.protocol import InferRequest, InferResponse, V2Model
from ringbatch.shm.tensor import Tensor

BATCH_ID = "123e4567-e89b-42d3-a456-426614174000"
ONE_TWO = bytes.fromhex("0000803f00000040")
TWO_THREE = bytes.fromhex("0000004000004040")


def codec(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor] = (), *, name: str = "m", cap: int = 32
) -> V2Model:
    """Return the codec of a model with these inputs; its outputs are the inputs unless given."""
    return V2Model(spec(0, inputs, outputs or inputs, name=name, max_batch_size=cap))


X, Y = Tensor("x", "FP32", [2]), Tensor("y", "FP32", [2])
ADDONE = codec([X], [Y], name="addone")
ECHO = codec([Tensor("s", "BYTES", [])], name="echo")
HALF = codec([Tensor("h", "FP16", [2])], name="half")
MATRIX = codec([Tensor("x", "INT32", [2, 2])])
OPEN = codec([Tensor("x", "INT64", [-1, 2])])
PAIR = codec(
    [Tensor("a", "INT64", []), Tensor("b", "BYTES", [-1])],
    [Tensor("p", "INT64", []), Tensor("q", "BYTES", [-1])],
    cap=2,
)
FLAGS = codec([Tensor("f", "BOOL", [2])])


def pair(**changes: Any) -> list[dict[str, Any]]:
    first = {"name": "a", "shape": [1], "datatype": "INT64", "data": [1]} | changes
    return [first, {"name": "b", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}]


def payload(request: InferRequest) -> bytes:
    (part,) = request.parts
    return bytes(part.payload)


def rendered(model: V2Model, request: InferRequest, *results: bytes) -> InferResponse:
    parts = [
        (part.rows, memoryview(result)) for part, result in zip(request.parts, results, strict=True)
    ]
    return model.answers.render(parts, request.requested, BATCH_ID)


def binary_answer(text: bytes, data: bytes) -> tuple[bytes, dict[str, str]]:
    return text + data, {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(text)),
        "x-batch-id": BATCH_ID,
    }


def json_answer(text: bytes) -> tuple[bytes, dict[str, str]]:
    return text, {"content-type": "application/json", "x-batch-id": BATCH_ID}


T7 = b'{"id":"42","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1.0,2.0]]}]}'
T8 = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
    b'"parameters":{"binary_data_output":true}}'
)
T8_ANSWER = binary_answer(
    b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
    b'"shape":[1,2],"parameters":{"binary_data_size":8}}]}',
    TWO_THREE,
)
T9 = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":false}}]}'
)
T11 = (
    b'{"inputs":[{"name":"s","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":16}}]}'
)
STRINGS = bytes.fromhex("0200000061620000000002000000c3a9")
T12 = (
    b'{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","parameters":{"binary_data_size":4}}],'
    b'"parameters":{"binary_data_output":true}}'
)
