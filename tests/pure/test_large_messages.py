"""Tensor of a large message: its place in the bytes, compared with protobuf's reading."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.grpc.large_messages import TensorSpan, tensor_span
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.offloaded_messages import MAX_FIELDS
from ringbatch.frontend.request.arrival import LARGE_BYTES

REQUEST = inference("ModelInferRequest")
TENSOR = b"\x01\x02\x03" * LARGE_BYTES


def message(*tensors: bytes, **fields: Any) -> bytes:
    described = [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    request = REQUEST(model_name="m", inputs=described, raw_input_contents=tensors, **fields)
    data: bytes = request.SerializeToString()
    return data


@given(st.text(max_size=300), st.text(max_size=9), st.integers(0, 300), st.booleans())
def test_the_bytes_before_the_tensor_are_the_request_without_it(
    identity: str, version: str, more: int, outputs: bool
) -> None:
    fields: dict[str, Any] = {"id": identity, "model_version": version}
    if outputs:
        fields["outputs"] = [{"name": "y"}]
        fields["parameters"] = {"priority": {"int64_param": more}}
    data = message(TENSOR, **fields)
    span = tensor_span(data[: len(data) - len(TENSOR) + more], len(data))
    assert span is not None
    assert span == TensorSpan(span.head_bytes, len(data) - len(TENSOR), len(TENSOR))
    head = REQUEST.FromString(data[: span.head_bytes])
    whole = REQUEST.FromString(data)
    whole.ClearField("raw_input_contents")
    assert head == whole


@given(st.integers(0, 60))
def test_too_few_bytes_tell_nothing(count: int) -> None:
    data = message(TENSOR)
    before = len(data) - len(TENSOR)
    assert (tensor_span(data[:count], len(data)) is not None) == (count >= before)


@pytest.mark.parametrize(
    ("data", "message_bytes"),
    [
        (message(TENSOR, TENSOR), None),
        (message(b"\0" * (LARGE_BYTES - 1)), None),
        (message(), None),
        (message(TENSOR), 1 << 30),
        (message(TENSOR) + REQUEST(id="behind it").SerializeToString(), None),
        (b"\x3b" + message(TENSOR), None),
        (b"\x0a\x00" * MAX_FIELDS + message(TENSOR), None),
        (b"\xff" * 64, None),
        (b"", 1 << 30),
    ],
    ids=["two", "small", "none", "not-all", "not-last", "a-group", "many", "no-varint", "empty"],
)
def test_other_messages_go_the_usual_way(data: bytes, message_bytes: int | None) -> None:
    assert tensor_span(data, message_bytes or len(data)) is None


@given(st.binary(max_size=200), st.integers(0, 1 << 33))
def test_any_bytes_are_read_without_an_error(data: bytes, message_bytes: int) -> None:
    span = tensor_span(data, message_bytes)
    assert span is None or span.start + span.size == message_bytes
