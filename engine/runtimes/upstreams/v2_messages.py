"""Batches for a V2 model server: from arrays to the body of a request, and its answer to arrays.

Pure. It follows the Open Inference Protocol and its binary tensor data extension.
"""

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.shm.brain_floats import narrowed, widened
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]

LENGTH_HEADER: Final = "Inference-Header-Content-Length"
_LENGTH: Final = struct.Struct("<I")
_NOT_IN_JSON: Final = ("FP16", "BF16")


class UnsoundAnswer(ValueError):
    """The answer violates the protocol; the text says how."""


def request(
    inputs: Sequence[Tensor], arrays: Sequence[Array], *, binary: bool
) -> tuple[bytes, int]:
    """Return the body of a batch's request.

    Args:
        inputs: of the model.
        arrays: one for each, as a model of `ringbatch.engine.models.model` takes them.
        binary: True to send tensors behind the JSON text; else they stand in it.

    Returns:
        The body, and the length of its JSON text.

    Raises:
        ValueError: a tensor has a datatype that JSON does not carry, or bytes that are no text.
    """
    described: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for tensor, array in zip(inputs, arrays, strict=True):
        entry: dict[str, Any] = {
            "name": tensor.name,
            "shape": list(array.shape),
            "datatype": tensor.datatype.name,
        }
        if binary:
            data = _packed(tensor, array)
            entry["parameters"] = {"binary_data_size": len(data)}
            tensors.append(data)
        else:
            entry["data"] = _listed(tensor, array)
        described.append(entry)
    asked: dict[str, Any] = {"inputs": described}
    if binary:
        asked["parameters"] = {"binary_data_output": True}
    text = orjson.dumps(asked, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join((text, *tensors)), len(text)


def answered(outputs: Sequence[Tensor], body: bytes, json_bytes: int | None) -> dict[str, Array]:
    """Return the outputs in an answer, by their names.

    Args:
        outputs: of the model.
        body: the answer.
        json_bytes: the length of its JSON text; None if there is nothing else.

    Raises:
        UnsoundAnswer: it violates the protocol, or lacks an output.
    """
    text = body if json_bytes is None else body[:json_bytes]
    try:
        answer = orjson.loads(text)
        entries = answer["outputs"]
        binary = memoryview(body)[len(text) :]
        found, start = {}, 0
        for entry in entries:
            size = entry.get("parameters", {}).get("binary_data_size")
            data = entry["data"] if size is None else binary[start : start + size]
            start += size or 0
            found[entry["name"]] = (entry["datatype"], entry["shape"], data)
        return {tensor.name: _output(tensor, *found[tensor.name]) for tensor in outputs}
    except orjson.JSONDecodeError as error:
        raise UnsoundAnswer(f"it is no JSON: {error}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise UnsoundAnswer(f"{type(error).__name__}: {error}") from None


def _output(tensor: Tensor, datatype: str, shape: list[int], data: Any) -> Array:
    if datatype != tensor.datatype.name:
        raise ValueError(f"output {tensor.name} is {datatype}, not {tensor.datatype.name}")
    if len(shape) > len(tensor.shape) + 1:
        # Checked before the product, which takes long for many sizes.
        raise ValueError(f"output {tensor.name} has {len(shape)} dimensions")
    count = prod(shape)
    if isinstance(data, memoryview):
        values = _unpacked(tensor, data, count)
    elif tensor.datatype.fixed:
        values = np.array(data, dtype=tensor.datatype.numpy)
    else:
        values = np.array(data, dtype=object)
    return values.reshape(shape)


def _packed(tensor: Tensor, array: Array) -> bytes:
    if tensor.datatype.name == "BF16":
        return narrowed(np.ascontiguousarray(array, "<f4")).tobytes()
    if tensor.datatype.fixed:
        return array.tobytes()
    pieces: list[bytes] = []
    for value in array.reshape(-1):
        pieces += (_LENGTH.pack(len(value)), value)
    return b"".join(pieces)


def _unpacked(tensor: Tensor, data: memoryview, count: int) -> Array:
    if tensor.datatype.name == "BF16":
        return widened(np.frombuffer(data, "<u2"))
    if tensor.datatype.fixed:
        return np.frombuffer(data, tensor.datatype.numpy)
    if not 0 <= count * _LENGTH.size <= len(data):
        raise ValueError(f"output {tensor.name} is shorter than its shape says")
    values: Array = np.empty(count, dtype=object)
    start = 0
    for index in range(count):
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        if start + length > len(data):
            raise ValueError(f"output {tensor.name} is shorter than its elements say")
        values[index] = bytes(data[start : start + length])
        start += length
    return values


def _listed(tensor: Tensor, array: Array) -> list[Any]:
    if tensor.datatype.name in _NOT_IN_JSON:
        raise ValueError(
            f"input {tensor.name} is {tensor.datatype.name}, which JSON does not carry"
        )
    flat: list[Any] = array.reshape(-1).tolist()
    if tensor.datatype.fixed:
        return flat
    return [value.decode() for value in flat]
