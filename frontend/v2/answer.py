"""Body of a V2 inference response, from results in slots.

    {"id":"...","model_name":"m","model_version":"1","outputs":[
        {"name":"y","datatype":"FP32","shape":[1,2],"data":[2.0,3.0]},
        {"name":"z","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},
        {"name":"s","datatype":"FP32","shape":[1,2]}]}

In this order and without blanks. `data` is flat. An FP32 number is written as the shortest decimal
of its value as FP64. Binary outputs follow the text in their order, and a header says where it
ends. Outputs in memory of the client's, as the last one here, are there when the answer is sent.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray
from orjson import OPT_SERIALIZE_NUMPY, dumps

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.classification import Classes
from ringbatch.frontend.codec.outcome import BATCH_HEADER, JSON, Headers
from ringbatch.frontend.codec.ragged import in_one
from ringbatch.frontend.codec.rendering import LARGE_RESULT_BYTES, LONG_RESULT_BYTES, LONG_ROWS
from ringbatch.frontend.codec.tensor_to_json import (
    Result,
    Unwritable,
    bytes_of,
    placed,
    strings,
    whole_shape,
)
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.frontend.v2.shared_memory import Target, expect_fit
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.tuples import unchecked_tuple

LENGTH_HEADER: Final = "inference-header-content-length"

_FP32: Final = np.dtype("<f4")
_FP64: Final = np.dtype("<f8")
_FEW: Final = 48
"""Numbers, of which a list is written faster than an array."""
_N: Final = ord("n")
_OCTETS: Final = ("content-type", "application/octet-stream")


class InferResponse(NamedTuple):
    """The body of an answer and its headers."""

    body: bytes
    headers: Headers


def answers_of(spec: ModelSpec) -> "InferAnswers":
    """Return the writer of answers of this model."""
    if len(spec.outputs) == 1 and spec.outputs[0].static and spec.outputs[0].datatype.fixed:
        return OneAnswer(spec)
    return InferAnswers(spec)


class InferAnswers:
    """Answers of one model.

    Attributes:
        spec: the model.

    Args:
        spec: the model, with declared outputs.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._frame = Frame(spec.answered)
        self._whole = in_one(spec)
        self._outputs = [
            _Output(index, tensor, batched=spec.batched)
            for index, tensor in enumerate(spec.outputs)
        ]
        name = dumps(spec.name).decode()
        version = dumps(spec.version).decode()
        self._start = f'"model_name":{name},"model_version":{version},"outputs":['.encode()
        own = {output.name for output in self._outputs}
        beside = {"model_name": name, "model_version": version}
        self._members = b"".join(
            f'"{member}":{text},'.encode() for member, text in beside.items() if member not in own
        )
        self._has_id = "id" not in own
        # Neighbours in a batch are answered one after the other.
        self._of_batch: tuple[str, Headers] = ("", JSON)
        self._of_binary: tuple[tuple[str, int], Headers] = (("", 0), JSON)

    def render(
        self, parts: Sequence[tuple[int, memoryview]], requested: RequestedOutputs, batch_id: str
    ) -> InferResponse:
        """Write an answer.

        Args:
            parts: rows and result of each part in order; none if there were no instances,
                which is possible if the shapes of the outputs are fixed.
            requested: what the request asked for.
            batch_id: empty if there was no batch.

        Raises:
            ModelFailed: a result does not fit the model's outputs.
            InvalidRequest: an output is wanted as JSON and JSON cannot carry it, or in memory that
                is too small or gone.
        """
        targets: list[tuple[Target, list[memoryview]]] = []
        try:
            rows, results = self._placed(parts)
            texts: list[bytes] = []
            binary: list[memoryview] = []
            for index, as_binary, classes in requested.outputs:
                output = self._outputs[index]
                if classes:
                    start, found = output.classified(rows, results, classes)
                    if as_binary:
                        data = joined(found)
                        texts.append(start + output.binary_end % len(data))
                        binary.append(memoryview(data))
                    else:
                        data = dumps([text.decode() for text in found])
                        texts.append(b'%b"data":%b}' % (start, data))
                    continue
                start = output.start(rows, results)
                if as_binary is True:
                    pieces = [bytes_of(index, result) for result in results]
                    texts.append(start + output.binary_end % sum(map(len, pieces)))
                    binary += pieces
                elif as_binary:
                    pieces = [bytes_of(index, result) for result in results]
                    expect_fit(output.name, sum(map(len, pieces)), as_binary)
                    texts.append(start[:-1] + b"}")
                    targets.append((as_binary, pieces))
                else:
                    data = b",".join(filter(None, map(output.write, results)))
                    texts.append(b'%b"data":[%b]}' % (start, data))
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        for target, pieces in targets:
            target.write(pieces)
        text = b"{%b%b%b]}" % (requested.id, self._start, b",".join(texts))
        if any(binary):
            return self._binary(text, binary, batch_id)
        return InferResponse(text, self._json_headers(batch_id))

    def render_members(
        self, parts: Sequence[tuple[int, memoryview]], requested: RequestedOutputs, batch_id: str
    ) -> InferResponse:
        """Write an answer of Triton's generate extension: each output is a member of the body.

        An output of one element is that element, any other one flat list. Arguments and errors are
        those of `render`; every output is wanted as JSON.
        """
        try:
            rows, results = self._placed(parts)
            members = b",".join([output.member(rows, results) for output in self._outputs])
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        identity = requested.id if self._has_id else b""
        text = b"{%b%b%b}" % (identity, self._members, members)
        return unchecked_tuple(InferResponse, (text, self._json_headers(batch_id)))

    def _placed(self, parts: Sequence[tuple[int, memoryview]]) -> tuple[int, list[Result]]:
        """Return the number of rows, and the places of the outputs in each result."""
        rows, results = 0, []
        for part_rows, memory in self._whole(parts):
            rows += part_rows
            results.append((memory, placed(self._frame, part_rows, memory)))
        return rows, results

    def takes_long(self, rows: int, size: int, requested: RequestedOutputs) -> bool:
        """Return whether another process must write an answer of so many rows and bytes of results.

        That process does not reach clients' memory.
        """
        if requested.shared:
            return False
        for index, binary, classes in requested.outputs:
            if classes and rows > LONG_ROWS:
                return True
            if not binary and size > self._outputs[index].most_bytes:
                return True
        return False

    def _binary(self, text: bytes, binary: Iterable[memoryview], batch_id: str) -> InferResponse:
        return InferResponse(b"".join((text, *binary)), self._binary_headers(len(text), batch_id))

    def _binary_headers(self, text_bytes: int, batch_id: str) -> Headers:
        if (batch_id, text_bytes) != self._of_binary[0]:
            length = (LENGTH_HEADER, str(text_bytes))
            headers = (_OCTETS, length, (BATCH_HEADER, batch_id))
            self._of_binary = ((batch_id, text_bytes), headers)
        return self._of_binary[1]

    def _json_headers(self, batch_id: str) -> Headers:
        if not batch_id:
            return JSON
        if batch_id != self._of_batch[0]:
            self._of_batch = (batch_id, (*JSON, (BATCH_HEADER, batch_id)))
        return self._of_batch[1]


class OneAnswer(InferAnswers):
    """Writer of answers of a model with one output of a fixed size.

    Answers in one part are written at once; all else goes the long way.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        (output,) = self._outputs
        (tensor,) = spec.outputs
        self._output = output
        self._row_bytes = prod(tensor.shape) * tensor.datatype.size
        self._texts: dict[tuple[int, bool], bytes] = {}

    def render(
        self, parts: Sequence[tuple[int, memoryview]], requested: RequestedOutputs, batch_id: str
    ) -> InferResponse:
        """As in `InferAnswers`."""
        if len(parts) == 1:
            rows, memory = parts[0]
            ((_, binary, classes),) = requested.outputs
            if memory.nbytes == rows * self._row_bytes > 0 and not classes:
                if binary is True:
                    text = b"{%b%b" % (requested.id, self._text(rows, True))
                    body = b"".join((text, memory))
                    return unchecked_tuple(
                        InferResponse, (body, self._binary_headers(len(text), batch_id))
                    )
                if binary is False:
                    output = self._output
                    data = output.write_at(memory, 0, rows * output.each)
                    text = b"{%b%b[%b]}]}" % (requested.id, self._text(rows, False), data)
                    return unchecked_tuple(InferResponse, (text, self._json_headers(batch_id)))
        return super().render(parts, requested, batch_id)

    def _text(self, rows: int, binary: bool) -> bytes:
        """Return the text of an answer between its id and its data, for the rows of one batch."""
        text = self._texts.get((rows, binary))
        if text is None:
            output = self._output
            text = self._start + output.start(rows, ())
            if binary:
                text += output.binary_end % (rows * self._row_bytes) + b"]}"
            else:
                text += b'"data":'
            self._texts[rows, binary] = text
        return text


class _Output:
    """Writer of one output of a model.

    Attributes:
        name: its name.
        most_bytes: the most bytes of results that this process writes as JSON.
        binary_end: a format of the rest of its object, the size of its binary data left open.
        write_at: ``write_at(memory, offset, count)``: so many elements of one size as JSON,
            without brackets; raises `InvalidRequest`.
    """

    binary_end: Final = b'"parameters":{"binary_data_size":%d}}'
    write_at: Callable[[memoryview, int, int], bytes]

    def __init__(self, index: int, tensor: Tensor, *, batched: bool) -> None:
        self._index = index
        self._batched = batched
        self._tensor = tensor
        self._classes = Classes(index, tensor, batched=batched)
        self.name = tensor.name
        self.most_bytes = LARGE_RESULT_BYTES if tensor.datatype.fixed else LONG_RESULT_BYTES
        name, datatype = dumps(tensor.name).decode(), tensor.datatype.name
        self._member = f"{name}:".encode()
        self._named = f'{{"name":{name},"datatype":'.encode()
        self._opening = b'%b"%b","shape":[' % (self._named, datatype.encode())
        sizes = ["", *map(str, tensor.shape)] if batched else map(str, tensor.shape)
        self._rest = f"{','.join(sizes)}],".encode() if tensor.static else None
        self._dtype = np.dtype("?" if datatype == "BYTES" else tensor.datatype.numpy)
        self._unpacks: dict[int, Callable[[memoryview, int], tuple[Any, ...]]] = {}
        self.each = prod(tensor.shape) if tensor.static else 0
        self.write_at = self._booleans if datatype == "BOOL" else self._numbers

    def start(self, rows: int, results: Sequence[Result]) -> bytes:
        """Return its object up to its shape; raise `Unwritable` if the results differ in shape."""
        if self._rest is not None:
            if self._batched:
                return b"%b%d%b" % (self._opening, rows, self._rest)
            return self._opening + self._rest
        shape = whole_shape(self._tensor, self._index, rows, results)
        sizes = ",".join(map(str, shape if self._batched else shape[1:]))
        return b"%b%b]," % (self._opening, sizes.encode())

    def classified(
        self, rows: int, results: Sequence[Result], classes: int
    ) -> tuple[bytes, list[bytes]]:
        """Return `start` for the tensor of its best classes, and that tensor's elements."""
        shape, found = self._classes.of(rows, results, classes)
        sizes = ",".join(map(str, shape)).encode()
        return b'%b"BYTES","shape":[%b],' % (self._named, sizes), found

    def write(self, result: Result) -> bytes:
        """Return its elements in a result as JSON, without brackets.

        Raises:
            Unwritable: the lengths of strings make no sense.
            InvalidRequest: JSON cannot carry them.
        """
        memory, placement = result
        part = placement.parts[self._index]
        if self._tensor.datatype.fixed:
            return self.write_at(memory, part.offset, prod(part.shape))
        found = strings(memory, part.offset, part.size, prod(part.shape))
        try:
            return dumps([text.decode() for text in found])[1:-1]
        except UnicodeDecodeError:
            raise self._not_as_json("holds bytes that are not UTF-8") from None

    def member(self, rows: int, results: Sequence[Result]) -> bytes:
        """Return it as a member of an object; arguments and errors as for `start` and `write`."""
        if len(results) == 1:
            shape, data = results[0][1].parts[self._index].shape, self.write(results[0])
        else:
            shape = whole_shape(self._tensor, self._index, rows, results)
            data = b",".join(filter(None, map(self.write, results)))
        return self._member + data if prod(shape) == 1 else b"%b[%b]" % (self._member, data)

    def _numbers(self, memory: memoryview, offset: int, count: int) -> bytes:
        if count <= _FEW:
            text = dumps(self._unpack(count)(memory, offset))[1:-1]
        else:
            array: NDArray[Any] = ndarray((count,), self._dtype, memory, offset)
            text = _listed(array.astype(_FP64) if array.dtype == _FP32 else array)
        if _N in text:  # null is what orjson writes for NaN and Infinity
            raise self._not_as_json("holds NaN or Infinity")
        return text

    def _unpack(self, count: int) -> Callable[[memoryview, int], tuple[Any, ...]]:
        unpack = self._unpacks.get(count)
        if unpack is None:
            numbers = struct.Struct(f"<{count}{self._tensor.datatype.code}")
            unpack = self._unpacks[count] = numbers.unpack_from
        return unpack

    def _booleans(self, memory: memoryview, offset: int, count: int) -> bytes:
        array: NDArray[np.uint8] = ndarray((count,), np.uint8, memory, offset)
        return _listed(np.not_equal(array, 0))

    def _not_as_json(self, fault: str) -> InvalidRequest:
        return InvalidRequest(
            f'output "{self._tensor.name}" {fault}, which JSON cannot carry; ask for binary data, '
            "in one answer of /infer"
        )


def _listed(array: NDArray[Any]) -> bytes:
    return dumps(array, None, OPT_SERIALIZE_NUMPY)[1:-1]
