"""Answers of models whose rows differ in length, see `ringbatch.shm.ragged`.

Rows have their own lengths if JSON can say that; else they are one array for all parts of a
request.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.tensor_to_json import placed, strings, uneven
from ringbatch.shm.frame import Frame, PlacedTensor
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ragged import evened, own_lengths
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]
Part = tuple[int, memoryview]
"""Rows, and the result that they have come to."""


def in_one(spec: ModelSpec) -> Callable[[Sequence[Part]], Sequence[Part]]:
    """Return a function that pads the parts of a request to the longest row of all.

    Each part is padded to its own longest row before. The function returns the parts as they are if
    no output declares a padding. It raises `Unwritable` or `FrameError` if a result does not fit.
    """
    if spec.answered == spec.outputs:
        return lambda parts: parts
    tensors, frame = spec.answered, Frame(spec.answered)

    def whole(parts: Sequence[Part]) -> Sequence[Part]:
        if len(parts) < 2:
            return parts
        own = [(memory, placed(frame, rows, memory).parts) for rows, memory in parts]
        arrays = [
            _together(tensor, [_stored(tensor, memory, places[i]) for memory, places in own])
            for i, tensor in enumerate(tensors)
        ]
        rows = sum(rows for rows, _ in parts)
        return [(rows, _framed(frame, rows, arrays))]

    return whole


class OwnLengths:
    """The lengths that rows of one output have of their own.

    Args:
        outputs: of a model.
        index: of the output, which declares a padding.
    """

    def __init__(self, outputs: Sequence[Tensor], index: int) -> None:
        self._shape = outputs[index].shape
        self._own = own_lengths(outputs, index)

    def cut(self, rows: Any, memory: memoryview, lengths: PlacedTensor) -> list[Any]:
        """Return the rows of the output without their padding.

        Args:
            rows: an array, or lists within a list.
            memory: of the result.
            lengths: the place of the rows' lengths in it.
        """
        found: Array = np.ndarray(lengths.shape, "<u8", memory, lengths.offset)
        return [
            self._cut(row, own) for row, own in zip(rows, found[:, self._own].tolist(), strict=True)
        ]

    def _cut(self, row: Any, own: list[int]) -> Any:
        open_sizes = iter(own)
        sizes = [next(open_sizes) if size == ANY else size for size in self._shape]
        if isinstance(row, np.ndarray):
            return np.ascontiguousarray(row[tuple(map(slice, sizes))])
        return _cut_lists(row, sizes)


def _cut_lists(value: Any, sizes: Sequence[int]) -> Any:
    if not sizes:
        return value
    return [_cut_lists(one, sizes[1:]) for one in value[: sizes[0]]]


def _stored(tensor: Tensor, memory: memoryview, part: PlacedTensor) -> Array:
    """Return a tensor as it is stored; elements of BYTES as objects."""
    if tensor.datatype.fixed:
        dtype = "<u2" if tensor.datatype.name == "BF16" else tensor.datatype.numpy
        return np.ndarray(part.shape, dtype, memory, part.offset)
    texts: Array = np.empty(prod(part.shape), dtype=object)
    texts[:] = strings(memory, part.offset, part.size, prod(part.shape))
    return texts.reshape(part.shape)


def _together(tensor: Tensor, arrays: Sequence[Array]) -> Array:
    shapes = {array.shape[1:] for array in arrays}
    if tensor.padding is None and len(shapes) > 1:
        raise uneven(tensor, shapes)
    return evened(arrays, tensor)


def _framed(frame: Frame, rows: int, arrays: Sequence[Array]) -> memoryview:
    """Return a result that holds these arrays."""
    data = [joined(a.reshape(-1)) if a.dtype == object else a.tobytes() for a in arrays]
    lengths = tuple(len(d) for d, a in zip(data, arrays, strict=True) if a.dtype == object)
    dimensions = tuple(
        size
        for tensor, array in zip(frame.tensors, arrays, strict=True)
        for size, declared in zip(array.shape[1:], tensor.shape, strict=True)
        if declared == ANY
    )
    placement = frame.place(rows, dimensions, lengths)
    memory = bytearray(placement.size)
    prefix = frame.prefix(dimensions, lengths)
    memory[: len(prefix)] = prefix
    for part, piece in zip(placement.parts, data, strict=True):
        memory[part.offset : part.offset + part.size] = piece
    return memoryview(memory)
