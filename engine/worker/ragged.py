"""Rows of one output that differ in shape, on their way from the model into the slots."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.ragged import evened
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]


class Uneven(ValueError):
    """Rows of one request differ in shape, and their output declares no padding; says which."""


class Ragged:
    """The rows of one output, each of its own shape.

    Args:
        rows: in the datatype that is stored, each of the shape of one instance.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Array]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, which: int) -> Array: ...
    @overload
    def __getitem__(self, which: slice) -> "Ragged": ...
    def __getitem__(self, which: int | slice) -> "Array | Ragged":
        if isinstance(which, slice):
            return Ragged(self.rows[which])
        return self.rows[which]


Column = Array | Ragged
"""An output of a batch: an array, or rows of their own shapes."""


def laid_out(columns: Sequence[Column], tensors: Sequence[Tensor]) -> list[Array]:
    """Return the outputs of one request as they stand in its slot.

    Args:
        columns: the request's rows of each output.
        tensors: of the slot; one more than the outputs if the lengths of rows have one, see
            `ringbatch.shm.ragged`.

    Raises:
        Uneven: rows differ in shape and cannot be padded.
    """
    arrays = [
        _padded(column, tensor) if isinstance(column, Ragged) else column
        for column, tensor in zip(columns, tensors, strict=False)
    ]
    if len(tensors) > len(columns):
        lengths = [
            _lengths(column, tensor)
            for column, tensor in zip(columns, tensors, strict=False)
            if tensor.padding is not None
        ]
        arrays.append(np.concatenate(lengths, axis=1))
    return arrays


def _padded(column: Ragged, tensor: Tensor) -> Array:
    shapes = {row.shape for row in column.rows}
    if len(shapes) > 1 and tensor.padding is None:
        found = ", ".join(map(str, sorted(map(list, shapes))[:2]))
        raise Uneven(
            f"rows of output {tensor.name!r} for one request have shapes {found} and so on, and "
            "nothing says how to pad them; return rows of one shape, or declare what shorter ones "
            f"are padded with: Tensor({tensor.name!r}, ..., padding=0)"
        )
    return evened([row[np.newaxis] for row in column.rows], tensor)


def _lengths(column: Column, tensor: Tensor) -> Array:
    """Return the open dimensions of each row; shape [rows, so many]."""
    axes = [axis for axis, size in enumerate(tensor.shape) if size == ANY]
    rows = column.rows if isinstance(column, Ragged) else column
    return np.array([[row.shape[axis] for axis in axes] for row in rows], "<u8")
