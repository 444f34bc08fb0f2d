"""ModelInferResponse: results in slots as the bytes of an answer.

Elements stand in `raw_output_contents`, an entry for each output. On request they stand instead in
the field of each output's `contents` for its datatype. Outputs in memory of the client's are there
when the answer is sent.

Messages are written field by field rather than built and serialized as a whole. The parts that many
answers share are serialized once, and a result is copied once, from its slot into the answer. By
the encoding of Protocol Buffers, a message's fields one after the other are the message.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.classification import Classes
from ringbatch.frontend.codec.payload import Bytes
from ringbatch.frontend.codec.ragged import in_one
from ringbatch.frontend.codec.rendering import LONG_RESULT_BYTES, LONG_ROWS
from ringbatch.frontend.codec.tensor_to_json import (
    Result,
    Unwritable,
    bytes_of,
    placed,
    strings,
    whole_shape,
)
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import CONTENTS, GrpcRequestedOutputs
from ringbatch.frontend.v2.requested_outputs import RequestedOutput
from ringbatch.frontend.v2.shared_memory import Target, expect_fit
from ringbatch.shm.errors import ModelFailed
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

_TENSORS_KEPT: Final = 256
_LENGTH_DELIMITED: Final = 2
_BATCH_PARAMETER: Final = "batch_id"
_ALL_RAW: Final = (RequestedOutput(0, binary=True),)
"""Usual outputs of a request to a model with one output."""
_Response: Final = inference("ModelInferResponse")
_Parameter: Final = inference("InferParameter")
_Tensor: Final = inference("ModelInferResponse.InferOutputTensor")
_Contents: Final = inference("InferTensorContents")


def _tag(message: Any, field: str) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    tag = number << 3 | _LENGTH_DELIMITED
    assert tag < 0x80, "a tag of one byte"
    return tag


_ID: Final = _tag(_Response, "id")
_BATCH_ID_LENGTH: Final = 36
_BATCH: Final = _Response(
    parameters={_BATCH_PARAMETER: _Parameter(string_param="-" * _BATCH_ID_LENGTH)}
).SerializeToString()[:-_BATCH_ID_LENGTH]
"""The field with the batch's id, up to that id."""
_OUTPUT: Final = _tag(_Response, "outputs")
_RAW: Final = _tag(_Response, "raw_output_contents")
_OF_TENSOR: Final = _tag(_Tensor, "contents")
_OF_STREAM: Final = _tag(inference("ModelStreamInferResponse"), "infer_response")


class GrpcAnswers:
    """Answers of one model.

    Attributes:
        spec: the model.
        prefix_bytes: at the start of a result, as in `Frame`.

    Args:
        spec: the model, with declared outputs.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._frame = Frame(spec.answered)
        self._whole = in_one(spec)
        self._outputs = spec.outputs
        self._batched = spec.batched
        self._start = _Response(
            model_name=spec.name, model_version=spec.version
        ).SerializeToString()
        self._heads: dict[tuple[int, tuple[int, ...]], bytes] = {}
        self._middles: dict[int, bytes] = {}
        self._row_bytes = spec.outputs[0].row_bytes or 0 if len(spec.outputs) == 1 else 0
        self._alone = len(spec.answered) == 1 and spec.outputs[0].datatype.fixed
        self.prefix_bytes = self._frame.prefix_bytes

    def render(
        self,
        parts: Sequence[tuple[int, memoryview]],
        requested: GrpcRequestedOutputs,
        fields: bytes,
    ) -> bytes:
        """Write an answer.

        Args:
            parts: rows and result of each part in order; none where there were no instances,
                which is possible where the shapes of the outputs are fixed.
            requested: what the request asked for.
            fields: what stands before the outputs: `id_field` and `batch_field`.

        Raises:
            ModelFailed: a result does not fit the model's outputs.
            InvalidRequest: an output is wanted in memory that is too small or gone.
        """
        if len(parts) == 1 and requested.outputs == _ALL_RAW and not requested.typed:
            ((rows, memory),) = parts
            if 0 < memory.nbytes == rows * self._row_bytes:
                return b"".join((self._start, fields, self._middle(rows), memory))
        pieces: list[Bytes] = [self._start, fields]
        raw: list[Bytes] = []
        targets: list[tuple[Target, list[memoryview]]] = []
        try:
            whole = self._whole(parts)
            results = [(memory, placed(self._frame, rows, memory)) for rows, memory in whole]
            rows = sum(rows for rows, _ in parts)
            for index, carried, classes in requested.outputs:
                tensor = self._outputs[index]
                if classes:
                    head, found = self._classified(index, rows, results, classes)
                    if requested.typed:
                        _add(pieces, _OUTPUT, [head, *_field_of("BYTES", found)])
                    else:
                        _add(pieces, _OUTPUT, [head])
                        _add(raw, _RAW, [joined(found)])
                    continue
                head = self._head(index, whole_shape(tensor, index, rows, results))
                data = [bytes_of(index, result) for result in results]
                if carried is True and requested.typed:
                    values = _values(tensor, index, results)
                    _add(pieces, _OUTPUT, [head, *_field_of(tensor.datatype.name, values)])
                    continue
                if not isinstance(carried, bool):
                    expect_fit(tensor.name, sum(map(len, data)), carried)
                    targets.append((carried, data))
                    data = []
                _add(pieces, _OUTPUT, [head])
                if not requested.typed:
                    # Clients count entries, so that one that carries nothing is there all the same.
                    _add(raw, _RAW, data)
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        for target, data in targets:
            target.write(data)
        return b"".join(pieces + raw)

    def tail_of(self, rows: int, result: bytes, requested: GrpcRequestedOutputs) -> int | None:
        """Return from where on a result is, as it stands, the end of its answer.

        The bytes of the answer before it depend on the result's size and prefix alone.

        Args:
            rows: in the result.
            result: all of it.
            requested: what the request asked for.

        Returns:
            None if the answer has another form, or the result does not fit the outputs.
        """
        if not self._alone or requested.outputs != _ALL_RAW or requested.typed:
            return None
        try:
            (tensor,) = placed(self._frame, rows, memoryview(result)).parts
        except (Unwritable, FrameError):
            return None
        return tensor.offset

    def takes_long(self, rows: int, size: int, requested: GrpcRequestedOutputs) -> bool:
        """Return whether another process writes an answer of so many rows and bytes of results.

        That process has no access to clients' memory.
        """
        if any(not isinstance(carried, bool) for _, carried, _ in requested.outputs):
            return False
        classified = any(classes for _, _, classes in requested.outputs)
        return (requested.typed and size > LONG_RESULT_BYTES) or (classified and rows > LONG_ROWS)

    def _classified(
        self, index: int, rows: int, results: Sequence[Result], classes: int
    ) -> tuple[bytes, list[bytes]]:
        """Return the tensor of an output's best classes without its elements, and the elements."""
        tensor = self._outputs[index]
        shape, found = Classes(index, tensor, batched=self._batched).of(rows, results, classes)
        message = _Tensor(name=tensor.name, datatype="BYTES", shape=shape)
        return message.SerializeToString(), found

    def _middle(self, rows: int) -> bytes:
        """Return the bytes between the id and the one tensor of an answer of one part."""
        middle = self._middles.get(rows)
        if middle is None:
            head = self._head(0, (rows, *self._outputs[0].shape))
            opening = _opening(_RAW, rows * self._row_bytes)
            middle = self._middles[rows] = _opening(_OUTPUT, len(head)) + head + opening
        return middle

    def _head(self, index: int, shape: tuple[int, ...]) -> bytes:
        """Return an output without its elements."""
        head = self._heads.get((index, shape))
        if head is None:
            tensor = self._outputs[index]
            message = _Tensor(
                name=tensor.name,
                datatype=tensor.datatype.name,
                shape=shape if self._batched else shape[1:],
            )
            if len(self._heads) >= _TENSORS_KEPT:
                self._heads.clear()
            head = self._heads[index, shape] = message.SerializeToString()
        return head


def id_field(identity: str) -> bytes:
    """Return the field of an answer with the request's id; empty if it has none."""
    data = identity.encode()
    return _opening(_ID, len(data)) + data if data else b""


def batch_field(batch_id: str) -> bytes:
    """Return the field of an answer with the id of its batch, a parameter; empty if it had none."""
    data = batch_id.encode()
    assert len(data) in (0, _BATCH_ID_LENGTH), "a UUID"
    return _BATCH + data if data else b""


def infer_response_field(response: bytes) -> bytes:
    """Return the field of a ModelStreamInferResponse with a ModelInferResponse."""
    return _opening(_OF_STREAM, len(response)) + response


def _opening(tag: int, size: int) -> bytes:
    """Return the bytes before the data of a field: its tag, and how many bytes follow."""
    opening = bytearray((tag,))
    while size > 0x7F:
        opening.append(size & 0x7F | 0x80)
        size >>= 7
    opening.append(size)
    return bytes(opening)


def _add(pieces: list[Bytes], tag: int, data: Sequence[Bytes]) -> None:
    """Append a field whose length stands before it."""
    pieces.append(_opening(tag, sum(map(len, data))))
    pieces += data


def _values(tensor: Tensor, index: int, results: Sequence[Result]) -> list[Any]:
    """Return the elements of an output."""
    values: list[Any] = []
    for memory, placement in results:
        part = placement.parts[index]
        if tensor.datatype.fixed:
            kind = np.dtype("?" if tensor.datatype.name == "BOOL" else tensor.datatype.numpy)
            values += np.frombuffer(memory, kind, prod(part.shape), part.offset).tolist()
        else:
            values += strings(memory, part.offset, part.size, prod(part.shape))
    return values


def _field_of(datatype: str, values: list[Any]) -> list[Bytes]:
    """Return the field `contents` of an output with these elements."""
    contents = _Contents(**{CONTENTS[datatype]: values})
    pieces: list[Bytes] = []
    _add(pieces, _OF_TENSOR, [contents.SerializeToString()])
    return pieces
