"""Outputs of a model that answers in parts as one answer, for requests that want no parts.

If the signature leaves a row's first dimension open, the parts of an output are joined along it. Of
other outputs the last part is the answer.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ringbatch.engine.worker.outputs import Fault, Outputs
from ringbatch.engine.worker.ragged import Column, Ragged
from ringbatch.shm.tensor import ANY, Tensor


def copied(outputs: Outputs) -> Outputs:
    """Return outputs that stay as they are when the model writes into its arrays again."""
    arrays = [
        Ragged([row.copy() for row in column.rows]) if isinstance(column, Ragged) else column.copy()
        for column in outputs.arrays
    ]
    return Outputs(arrays, outputs.faults)


def empty_rows(outputs: Outputs, tensors: Sequence[Tensor]) -> Collection[int]:
    """Return the numbers of the rows that have nothing to be joined, and no output that counts."""
    found: Collection[int] | None = None
    for column, tensor in zip(outputs.arrays, tensors, strict=True):
        if not _joins(tensor):
            return ()
        if isinstance(column, Ragged):
            own = {number for number, row in enumerate(column.rows) if not len(row)}
        else:
            own = {*range(0 if column.shape[1] else len(column))}
        found = own if found is None else own.intersection(found)
        if not found:
            return ()
    return found or ()


def joined_outputs(parts: Sequence[Outputs], tensors: Sequence[Tensor]) -> Outputs:
    """Return the parts of a batch, at least one, as its outputs.

    A row fails if any part of it that counts has a fault.
    """
    arrays: list[Any] = []
    faults: list[Fault] = []
    for place, tensor in enumerate(tensors):
        joins = _joins(tensor)
        counted = parts if joins else parts[-1:]
        columns = [part.arrays[place] for part in counted]
        arrays.append(_joined(columns) if joins else columns[0])
        for part in counted:
            faults += [_by_row(fault) for fault in part.faults if fault.output == place]
    return Outputs(arrays, faults)


def _joins(tensor: Tensor) -> bool:
    return bool(tensor.shape) and tensor.shape[0] == ANY


def _joined(columns: Sequence[Column]) -> Column:
    if any(isinstance(column, Ragged) for column in columns):
        rows = zip(*[[*_rows(column)] for column in columns], strict=True)
        return Ragged([np.concatenate(own) for own in rows])
    arrays = [column for column in columns if not isinstance(column, Ragged)]
    if len({array.shape[2:] for array in arrays}) > 1:
        return Ragged([np.concatenate(own) for own in zip(*arrays, strict=True)])
    return np.concatenate(arrays, axis=1)


def _rows(column: Column) -> Any:
    return column.rows if isinstance(column, Ragged) else column


def _by_row(fault: Fault) -> Fault:
    """Return a fault with one element for each row: the rows of parts differ in shape."""
    elements = fault.elements
    return fault._replace(elements=np.asarray(elements.reshape(len(elements), -1).any(axis=1)))
