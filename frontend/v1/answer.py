"""Body of a V1 predict response, from results in slots.

    {"message":"","batchId":"...","predictions":[...]}     row format: one entry an instance
    {"message":"","batchId":"...","outputs":...}           column format

One output: an entry is its value, and in column format the tensor stands alone. Several: an entry
is an object {output name: value}, and in column format there is one object of tensors.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final, Protocol

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray
from orjson import OPT_SERIALIZE_NUMPY, JSONDecodeError, dumps, loads

from ringbatch.frontend.codec.number_form import NumberForm
from ringbatch.frontend.codec.outcome import WRONG_COUNT, WrongCount
from ringbatch.frontend.codec.ragged import OwnLengths
from ringbatch.frontend.codec.rendering import LARGE_RESULT_BYTES, LONG_RESULT_BYTES, LONG_ROWS
from ringbatch.frontend.codec.tensor_to_json import TensorWriter, Unwritable, placed
from ringbatch.shm.errors import ModelFailed
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.host.json_text import UnsoundText, whole_list
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

_BLANK: Final = b" \t\r\n"
_N: Final = ord("n")


class Answers(Protocol):
    """Writes answers of one model."""

    def render(
        self, parts: Sequence[tuple[int, memoryview]], columns: bool, batch_id: str
    ) -> bytes:
        """Write the body of an answer.

        Args:
            parts: rows and result of each part in order, at least one.
            columns: whether the request was in column format.
            batch_id: free of characters that JSON escapes.

        Raises:
            ModelFailed: a result does not fit the outputs, or JSON cannot carry it.
        """

    def takes_long(self, rows: int, size: int) -> bool:
        """Return whether another process must write an answer of so many rows and bytes."""

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """Return the form of answers in row format, as in `NumberRendering`."""


def answers_of(spec: ModelSpec) -> Answers:
    """Return the writer of answers of this model."""
    if not spec.typed:
        return UntypedAnswers()
    if len(spec.outputs) == 1 and _is_plain(spec.outputs[0]):
        return NumberAnswers(spec)
    return TypedAnswers(spec)


class RowStarts:
    """Beginnings of answers in row format, up to their predictions."""

    __slots__ = ("_batch_id", "_start")

    def __init__(self) -> None:
        self._batch_id: str | None = None
        self._start = b""

    def of(self, batch_id: str) -> bytes:
        """Return the beginning of an answer from that batch, in `_body`'s form.

        The text of the last batch is kept: its requests are mostly answered one after another.
        """
        if batch_id != self._batch_id:
            self._batch_id = batch_id
            self._start = b'{"message":"","batchId":"%b","predictions":' % batch_id.encode()
        return self._start


class TypedAnswers:
    """Answers of a model with declared outputs."""

    def __init__(self, spec: ModelSpec) -> None:
        self._frame = Frame(spec.answered)
        self._writers = [TensorWriter(tensor) for tensor in spec.outputs]
        self._own_lengths = [
            (index, OwnLengths(spec.outputs, index))
            for index, tensor in enumerate(spec.outputs)
            if tensor.padding is not None
        ]
        self._alone = len(spec.outputs) == 1 and not self._own_lengths
        self._names = [tensor.name for tensor in spec.outputs]
        self._fixed = all(tensor.datatype.fixed for tensor in spec.outputs)

    def render(
        self, parts: Sequence[tuple[int, memoryview]], columns: bool, batch_id: str
    ) -> bytes:
        """As in `Answers`."""
        try:
            if self._alone:
                texts = [self._text(rows, memory) for rows, memory in parts]
                return _body(columns, batch_id, _joined(texts))
            answers = [self._tensors(rows, memory) for rows, memory in parts]
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        if len(self._writers) == 1:
            return _body(columns, batch_id, _joined([_dumps(tensor) for (tensor,) in answers]))
        if columns:
            return _body(columns, batch_id, self._columns(answers))
        rows = (row for tensors in answers for row in zip(*tensors, strict=True))
        named = [dict(zip(self._names, row, strict=True)) for row in rows]
        return _body(columns, batch_id, _dumps(named))

    def takes_long(self, rows: int, size: int) -> bool:
        """Return whether another process must write the answer, as in `Answers`."""
        by_row = len(self._writers) > 1 or bool(self._own_lengths)
        most = LARGE_RESULT_BYTES if self._fixed else LONG_RESULT_BYTES
        return size > most or (by_row and rows * len(self._writers) > LONG_ROWS)

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """Return the form of answers in row format, as in `NumberRendering`."""
        writer = self._writers[0]
        if not (self._alone and writer.is_plain):
            return None
        try:
            (part,) = placed(self._frame, rows, memoryview(result)).parts
        except (Unwritable, FrameError):
            return None
        if not part.size:
            return None
        before, after = _body(False, batch_id, b"\0").split(b"\0")
        prefix_bytes = self._frame.prefix_bytes
        return NumberForm(prefix_bytes, part.offset, writer.dtype, part.shape, before, after)

    def _columns(self, answers: list[list[Any]]) -> bytes:
        outputs = zip(self._names, zip(*answers, strict=True), strict=True)
        members = (_dumps(name) + b":" + _joined(map(_dumps, pieces)) for name, pieces in outputs)
        return b"{%b}" % b",".join(members)

    def _text(self, rows: int, memory: memoryview) -> bytes:
        (part,) = placed(self._frame, rows, memory).parts
        return self._writers[0].text(memory, part.offset, part.size, part.shape)

    def _tensors(self, rows: int, memory: memoryview) -> list[Any]:
        parts = placed(self._frame, rows, memory).parts
        # Behind those of the outputs may be one for the lengths of rows.
        tensors = [
            writer.rows(memory, part.offset, part.size, part.shape)
            for writer, part in zip(self._writers, parts, strict=False)
        ]
        for index, own_lengths in self._own_lengths:
            tensors[index] = own_lengths.cut(tensors[index], memory, parts[-1])
        return tensors


class NumberAnswers(TypedAnswers):
    """Answers of a model whose one output is of numbers and of a fixed shape.

    A result in one part without NaN is written at once; everything else goes the long way.

    Attributes:
        dtype: of the numbers.
        row_bytes: how many an instance's result has.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        (output,) = spec.outputs
        self._shape = output.shape
        self.dtype = np.dtype(output.datatype.numpy)
        self.row_bytes = prod(output.shape) * output.datatype.size
        self._starts = RowStarts()

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a result of so many rows."""
        return (rows, *self._shape)

    def render(
        self, parts: Sequence[tuple[int, memoryview]], columns: bool, batch_id: str
    ) -> bytes:
        """As in `Answers`."""
        if len(parts) == 1 and not columns:
            rows, memory = parts[0]
            if memory.nbytes == rows * self.row_bytes:
                numbers = ndarray(self.shape(rows), self.dtype, memory)
                answer = self.write(numbers, batch_id)
                if answer is not None:
                    return answer
        return super().render(parts, columns, batch_id)

    def write(self, numbers: NDArray[Any], batch_id: str) -> bytes | None:
        """Write an answer of these predictions; None if one of them holds NaN or infinity.

        Args:
            numbers: contiguous, of `dtype` and of the shape for their number.
            batch_id: as in `render`.
        """
        text = dumps(numbers, None, OPT_SERIALIZE_NUMPY)
        if _N in text:  # null is what orjson writes for NaN and Infinity
            return None
        return self._starts.of(batch_id) + text + b"}"


class UntypedAnswers:
    """Answers that are JSON text already; each value passes as the model's side wrote it."""

    def render(
        self, parts: Sequence[tuple[int, memoryview]], columns: bool, batch_id: str
    ) -> bytes:
        """As in `Answers`; `columns` is never true for such a model."""
        texts = [bytes(memory) for _, memory in parts]
        for (rows, _), text in zip(parts, texts, strict=True):
            if len(_list(text)) != rows:
                raise WrongCount(WRONG_COUNT)
        return _body(columns, batch_id, _joined([text.strip(_BLANK) for text in texts]))

    def takes_long(self, rows: int, size: int) -> bool:
        """Return whether another process must write the answer, as in `Answers`."""
        return size > LONG_RESULT_BYTES

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """Return None, as the text is the model's."""
        return None


def _list(text: bytes) -> list[Any]:
    try:
        decoded = loads(text)
    except JSONDecodeError:
        # Python writes, and reads, more than orjson does: longer integers, lone surrogates.
        try:
            decoded = whole_list(text.decode())
        except UnicodeDecodeError:
            raise ModelFailed("the answer is not UTF-8") from None
        except UnsoundText as error:
            raise ModelFailed(f"the answer is no JSON list: {error}") from None
    if not isinstance(decoded, list):
        raise ModelFailed("the answer is no JSON list")
    return decoded


def _body(columns: bool, batch_id: str, answer: bytes) -> bytes:
    key = b"outputs" if columns else b"predictions"
    return b'{"message":"","batchId":"%b","%b":%b}' % (batch_id.encode(), key, answer)


def _joined(lists: Iterable[bytes]) -> bytes:
    """Return one JSON list with the elements of several lists, none of which is empty."""
    texts = [*lists]
    if len(texts) == 1:
        return texts[0]
    return b"[%b]" % b",".join([text[1:-1] for text in texts])


def _dumps(value: Any) -> bytes:
    return dumps(value, None, OPT_SERIALIZE_NUMPY)


def _is_plain(output: Tensor) -> bool:
    """Return whether numpy and orjson write the datatype as it lies in memory, in a fixed shape."""
    return output.static and output.datatype.name not in ("BOOL", "BF16", "BYTES")
