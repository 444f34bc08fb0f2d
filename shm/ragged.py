"""Outputs whose rows differ in length within one request.

In a slot such an output is an array like any other: its rows are padded to the longest of that
request, with the value that the output declares. One more tensor stands behind the outputs of such
a model, which says how long each row is without that:

    row_lengths UINT64 [k]    the open dimensions of all outputs that declare a padding, in order

JSON that can say it has rows of their own lengths; everyone else has the padded array.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.brain_floats import narrowed
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]

_LENGTHS: Final = "row_lengths"


def answered(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return a model's outputs as slots hold them: with row lengths if any declares a padding."""
    count = sum(map(_lengths_of, outputs))
    return (*outputs, Tensor(_LENGTHS, "UINT64", [count])) if count else tuple(outputs)


def own_lengths(outputs: Sequence[Tensor], index: int) -> slice:
    """Return the slice of a row's lengths that belong to one output."""
    start = sum(map(_lengths_of, outputs[:index]))
    return slice(start, start + _lengths_of(outputs[index]))


def evened(arrays: Sequence[Array], tensor: Tensor) -> Array:
    """Return the rows of all arrays in one, padded to the longest.

    Args:
        arrays: of shape [rows, ...], as they are stored; at least one.
        tensor: their description; declares a padding if their shapes differ.
    """
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) == 1:
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    longest = tuple(map(max, *shapes))
    joined: Array = np.full(
        (sum(map(len, arrays)), *longest), _stored(tensor.padding, tensor), arrays[0].dtype
    )
    start = 0
    for array in arrays:
        stop = start + len(array)
        joined[(slice(start, stop), *map(slice, array.shape[1:]))] = array
        start = stop
    return joined


def _lengths_of(tensor: Tensor) -> int:
    return 0 if tensor.padding is None else tensor.shape.count(ANY)


def _stored(padding: Any, tensor: Tensor) -> Any:
    if tensor.datatype.name == "BF16":
        return narrowed(np.array([padding], "<f4"))[0]
    return padding
