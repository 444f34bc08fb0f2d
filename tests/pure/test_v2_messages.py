"""Batches for a V2 model server: tensors of every datatype there and back."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringbatch.engine.runtimes.upstreams.v2_messages import UnsoundAnswer, answered, request
from ringbatch.shm.tensor import DATATYPES, Tensor

NUMBERS = [name for name in DATATYPES if name not in ("BYTES", "BF16", "BOOL")]
Y = Tensor("y", "FP32", [2])


def array_of(datatype: str) -> NDArray[Any]:
    """Values [2, 3] that the datatype holds exactly."""
    if datatype == "BYTES":
        values = np.empty((2, 3), dtype=object)
        values.reshape(-1)[:] = [b"", b"a\0", "é".encode(), b"b" * 300, b"\x01", b"z"]
        return values
    if datatype == "BF16":
        return np.array([[1.0, -2.0, 0.5], [3.0, 4.0, 0.0]], "<f4")
    return np.array([[1, 0, 1], [0, 1, 1]]).astype(DATATYPES[datatype].numpy)


def as_answer(body: bytes, json_bytes: int) -> tuple[bytes, int]:
    """A request as the answer that has its inputs for outputs."""
    text = json.loads(body[:json_bytes])
    answer = json.dumps({"model_name": "m", "outputs": text["inputs"]}).encode()
    return answer + body[json_bytes:], len(answer)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", DATATYPES)
def test_tensors_come_back_as_they_went(datatype: str, binary: bool) -> None:
    first, second = Tensor("a", datatype, [3]), Tensor("b", "INT8", [1])
    arrays = [array_of(datatype), np.array([[7], [-8]], np.int8)]
    if not binary and datatype in ("FP16", "BF16"):
        with pytest.raises(ValueError, match="JSON does not carry"):
            request([first, second], arrays, binary=binary)
        return
    body, size = as_answer(*request([first, second], arrays, binary=binary))
    found = answered([second, first], body, size if binary else None)
    assert list(found) == ["b", "a"]
    if datatype == "BYTES" and not binary:
        assert found["a"].tolist() == [[v.decode() for v in row] for row in arrays[0].tolist()]
    else:
        assert found["a"].tolist() == arrays[0].tolist()
    assert (found["a"].dtype == arrays[0].dtype, found["a"].shape) == (True, (2, 3))
    assert found["b"].tolist() == [[7], [-8]]


def test_a_request_asks_for_binary_tensors_and_says_where_they_begin() -> None:
    body, size = request([Y], [np.array([[1, 2]], "<f4")], binary=True)
    assert json.loads(body[:size]) == {
        "inputs": [
            {
                "name": "y",
                "shape": [1, 2],
                "datatype": "FP32",
                "parameters": {"binary_data_size": 8},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
    assert body[size:] == struct.pack("<2f", 1, 2)


def test_bytes_that_are_no_text_do_not_go_into_json() -> None:
    values = np.array([[b"\xff"]], dtype=object)
    with pytest.raises(UnicodeDecodeError):
        request([Tensor("s", "BYTES", [1])], [values], binary=False)


def answer(**changes: Any) -> bytes:
    entry = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]} | changes
    return json.dumps({"outputs": [{k: v for k, v in entry.items() if v is not None}]}).encode()


def test_a_plain_answer_is_read() -> None:
    assert answered([Y], answer(), None)["y"].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"error":"no"}',
        b'{"outputs":[]}',
        b'{"outputs":[5]}',
        answer(name="z"),
        answer(name=None),
        answer(datatype="INT32"),
        answer(shape=[3]),
        answer(shape="x"),
        answer(data=["a", "b"]),
        answer(data=None),
        answer(data=None, parameters={"binary_data_size": 8}),
        answer(data=None, parameters={"binary_data_size": -8}),
        answer(data=None, parameters={"binary_data_size": "x"}),
        answer(parameters=5),
        answer(shape=[1, 2, 1]),
        answer(shape=[(1 << 63) - 1] * 1000),
    ],
)
def test_an_invalid_answer_is_refused(body: bytes) -> None:
    with pytest.raises(UnsoundAnswer):
        answered([Y], body, None)


@pytest.mark.parametrize("data", [b"\x05\0\0\0abc", b"\x05\0\0", b""])
def test_texts_shorter_than_they_say_are_refused(data: bytes) -> None:
    text = answer(
        datatype="BYTES", shape=[1], data=None, parameters={"binary_data_size": len(data)}
    )
    with pytest.raises(UnsoundAnswer):
        answered([Tensor("y", "BYTES", [])], text + data, len(text))


@pytest.mark.parametrize("value", [300, -1, 2**70])
def test_numbers_beyond_their_type_are_refused(value: int) -> None:
    with pytest.raises(UnsoundAnswer):
        answered(
            [Tensor("y", "UINT8", [])], answer(datatype="UINT8", shape=[1], data=[value]), None
        )


@pytest.mark.parametrize("shape", [[1 << 60], [-1], [1 << 40, 1 << 40]])
def test_a_shape_of_more_texts_than_there_are_bytes_is_refused(shape: list[int]) -> None:
    text = answer(datatype="BYTES", shape=shape, data=None, parameters={"binary_data_size": 4})
    with pytest.raises(UnsoundAnswer):
        answered([Tensor("y", "BYTES", [])], text + bytes(4), len(text))


def test_bf16_goes_out_rounded_to_the_nearest() -> None:
    x = Tensor("x", "BF16", [1])
    body, length = request([x], [np.array([[1 + 2**-8 + 2**-20]], np.float32)], binary=True)
    assert body[length:] == b"\x81\x3f"
