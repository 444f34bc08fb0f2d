"""Requests and answers of the Open Inference Protocol over gRPC, as bytes and as values. Pure.

Read and written field by field: what is needed of two messages takes less than the package for them
would. What stands here as JSON is V2's.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.shm.brain_floats import narrowed, widened
from ringbatch.shm.tensor import DATATYPES

_NUMBER, _EIGHT, _TEXT, _FOUR = 0, 1, 2, 5
_LENGTH: Final = struct.Struct("<I")
_OUTPUTS, _RAW = 5, 6


def infer_request(model: str, body: bytes) -> bytes:
    """Return a ModelInferRequest with raw contents, made of a request of V2 in JSON.

    Raises:
        ValueError: it has a field that is not sent over gRPC, or is no such request.
    """
    parts = [_field(1, model.encode())]
    raw = []
    for tensor, array in tensors_of(body):
        sizes = b"".join(_varint(size) for size in array.shape)
        about = (tensor["name"].encode(), tensor["datatype"].encode(), sizes)
        parts.append(_field(5, b"".join(_field(n, part) for n, part in enumerate(about, 1))))
        raw.append(_field(7, _packed(tensor["datatype"], array)))
    return b"".join([*parts, *raw])


def tensors_of(body: bytes) -> list[tuple[dict[str, Any], NDArray[Any]]]:
    """Return the inputs of a V2 request in JSON, each as it stands there and as an array.

    Arrays are as a Client takes them: BYTES are objects, and BF16 are uint16.

    Raises:
        ValueError: it is no such request, or has more than inputs.
    """
    found = orjson.loads(body)
    if more := sorted(set(found) - {"inputs", "id"}):
        raise ValueError(f'only "inputs" can be sent this way, and there is "{more[0]}" too')
    arrays = []
    for tensor in found["inputs"]:
        try:
            about = {"name": str(tensor["name"]), "datatype": str(tensor["datatype"])}
            arrays.append((about, array_of(tensor)))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"an input cannot be read: {error!r}") from None
    return arrays


def array_of(tensor: Mapping[str, Any]) -> NDArray[Any]:
    """Return a tensor of V2's JSON as a Client has it, [shape]: BYTES are objects, BF16 bits.

    Raises:
        KeyError, TypeError, ValueError, OverflowError, AttributeError: it is none.
    """
    datatype, data = tensor["datatype"], tensor["data"]
    if datatype == "BYTES":
        array = np.array([value.encode() for value in _flat(data)], object)
    elif datatype == "BF16":
        array = narrowed(np.array(data, np.float32))
    else:
        array = np.array(data, DATATYPES[datatype].numpy)
    return array.reshape([int(size) for size in tensor["shape"]])


def outputs_of(message: bytes) -> tuple[Callable[[], list[dict[str, Any]]], bytes]:
    """Return the answer in a ModelInferResponse: a function that decodes it, and its bytes.

    The bytes lack the parts that differ with every request, such as its id. Decoded it looks as in
    V2's JSON, with flat data.

    Raises:
        ValueError: it is no such message.
    """
    tensors, raw, tensor_bytes = [], [], []
    for number, _, value in _fields(message):
        if number == _OUTPUTS and isinstance(value, bytes):
            tensors.append(value)
            tensor_bytes.append(value)
        elif number == _RAW and isinstance(value, bytes):
            raw.append(value)
            tensor_bytes.append(value)
    return lambda: _decoded(tensors, raw), b"\0".join(tensor_bytes)


def _decoded(tensors: Sequence[bytes], raw: Sequence[bytes]) -> list[dict[str, Any]]:
    if raw and len(raw) != len(tensors):
        raise ValueError(f"{len(tensors)} outputs, and contents of {len(raw)}")
    found = []
    for at, tensor in enumerate(tensors):
        fields: dict[int, Any] = {}
        shape: list[int] = []
        for number, wire, value in _fields(tensor):
            if number == 3:
                shape += [value] if wire == _NUMBER else list(_varints(value))
            else:
                fields[number] = value
        datatype = fields.get(2, b"").decode()
        data = _unpacked(datatype, raw[at]) if raw else _of_contents(datatype, fields.get(5, b""))
        name = fields.get(1, b"").decode()
        found.append({"name": name, "datatype": datatype, "shape": shape, "data": data})
    return found


def _packed(datatype: str, array: NDArray[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(_LENGTH.pack(len(value)) + value for value in array.ravel().tolist())
    return array.tobytes()


def _unpacked(datatype: str, raw: bytes) -> list[Any]:
    if datatype == "BYTES":
        values, at = [], 0
        while at < len(raw):
            (size,) = _LENGTH.unpack_from(raw, at)
            values.append(raw[at + 4 : at + 4 + size].decode(errors="replace"))
            at += 4 + size
        return values
    if datatype not in DATATYPES:
        raise ValueError(f"an output of the datatype {datatype}")
    found: list[Any]
    if datatype == "BF16":
        found = widened(np.frombuffer(raw, "<u2")).tolist()
    else:
        found = np.frombuffer(raw, DATATYPES[datatype].numpy).tolist()
    return found


def _of_contents(datatype: str, contents: bytes) -> list[Any]:
    """Return elements in the field of their datatype, packed or one by one."""
    values: list[Any] = []
    floats = {6: "<f4", 7: "<f8"}
    for number, wire, value in _fields(contents):
        if number == 8:
            values.append(value.decode(errors="replace"))
        elif number in floats:
            values += np.frombuffer(value, floats[number]).tolist()
        else:
            found = [value] if wire == _NUMBER else list(_varints(value))
            values += [_signed(one) for one in found] if number in (2, 3) else found
    return [bool(value) for value in values] if datatype == "BOOL" else values


def _flat(data: Any) -> Iterator[Any]:
    for one in data:
        if isinstance(one, list):
            yield from _flat(one)
        else:
            yield one


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field; bytes, or a number.

    Raises:
        ValueError: it is no message.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire = tag & 7
        if wire == _NUMBER:
            value, at = _read_varint(message, at)
            yield tag >> 3, wire, value
            continue
        if wire == _TEXT:
            size, at = _read_varint(message, at)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"a field of the wire type {wire}")
        if at + size > len(message):
            raise ValueError("a message that is cut off")
        yield tag >> 3, wire, message[at : at + size]
        at += size


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number that is cut off")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _TEXT) + _varint(len(data)) + data
