"""Outputs of a model, in the datatypes that it declared.

A return value that does not fit the signature as a whole is a `WrongResult`. A wrong element is a
fault of that element alone, so that it costs no other request.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.worker.ragged import Ragged
from ringbatch.shm.brain_floats import narrowed
from ringbatch.shm.errors import type_in_words
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]


class WrongResult(Exception):
    """Return value of a model that does not fit its signature."""


class WrongCount(WrongResult):
    """The result is for another number of instances than the model was given."""


class Fault(NamedTuple):
    """Elements of an output that cannot be sent.

    Attributes:
        output: which one, from 0.
        elements: true for these; in the output's shape, or one for each row where rows differ in
            theirs.
        error: why.
    """

    output: int
    elements: Array
    error: WrongResult


class Outputs:
    """Outputs of a model for a batch.

    Args:
        arrays: one an output, with rows, in the declared datatype; BF16 as its bits, BYTES as
            objects that are `bytes`; `Ragged` if rows differ in shape. An element with a fault has
            no meaningful value.
        faults: none, mostly.
    """

    __slots__ = ("arrays", "faults")

    def __init__(self, arrays: list[Any], faults: Sequence[Fault] = ()) -> None:
        self.arrays = arrays
        self.faults = faults

    def first_rows(self, count: int) -> "Outputs":
        """Return the outputs of the first rows."""
        return self._rows(slice(count))

    def one_row(self, number: int) -> "Outputs":
        """Return the outputs of one row alone."""
        return self._rows(slice(number, number + 1))

    def _rows(self, rows: slice) -> "Outputs":
        return Outputs(
            [array[rows] for array in self.arrays],
            [fault._replace(elements=fault.elements[rows]) for fault in self.faults],
        )


class Checker:
    """Checks what a model returns.

    Args:
        tensors: its outputs.
        batched: whether what it returns has a batch dimension.
        function: its function that returns them, for messages.
    """

    def __init__(
        self, tensors: Sequence[Tensor], *, batched: bool = True, function: str = "predict"
    ) -> None:
        self._tensors = tuple(tensors)
        self._function = function
        self._batched = batched
        self._only: tuple[tuple[int, ...], np.dtype[Any]] | None = None
        """Shape and dtype of the only output, where an array of these needs no conversion."""
        if len(tensors) == 1 and batched and _is_plain(tensors[0]):
            self._only = tensors[0].shape, array_dtype(tensors[0])

    def outputs(self, returned: object, rows: int) -> Outputs:
        """Return the outputs of `predict` for so many rows.

        Raises:
            WrongResult: they do not fit the signature; the text says why.
        """
        # A slice or a copy of a subclass may be another array.
        if self._only is not None and type(returned) is np.ndarray:
            shape, dtype = self._only
            if returned.dtype == dtype and returned.shape == (rows, *shape):
                return Outputs([returned])
        arrays: list[Any] = []
        faults: list[Fault] = []
        for place, value in enumerate(self._by_output(returned)):
            tensor = self._tensors[place]
            if self._batched and (apart := _rows_apart(value, tensor)):
                if len({row.shape for row, _ in apart}) > 1:
                    column, fault = _ragged(apart, place, tensor, rows)
                    arrays.append(column)
                    faults += fault
                    continue
                value = _stacked(apart)
            array, masked = _as_array(value, tensor)
            _expect_shape(array, tensor, (rows, *tensor.shape) if self._batched else tensor.shape)
            converted, beyond, beyond_words = _converted(array, tensor)
            arrays.append(converted if self._batched else converted[np.newaxis])
            for elements, words in ((masked, "masked values"), (beyond, beyond_words)):
                if elements is not None and elements.any():
                    error = WrongResult(f"output {tensor.name!r} holds {words}")
                    own = elements if self._batched else elements[np.newaxis]
                    faults.append(Fault(place, own, error))
        return Outputs(arrays, faults)

    def _by_output(self, returned: object) -> list[object]:
        tensors = self._tensors
        if isinstance(returned, dict):
            names = [tensor.name for tensor in tensors]
            if set(returned) != set(names):
                given = sorted(map(str, returned))
                raise WrongResult(
                    f"{self._function} returned outputs {given}, declared are {names}"
                )
            return [returned[name] for name in names]
        if len(tensors) == 1:
            return [returned]
        if not isinstance(returned, (tuple, list)) or len(returned) != len(tensors):
            found = (
                f"{len(returned)} values" if isinstance(returned, (tuple, list)) else "one value"
            )
            wanted = f"declared are {len(tensors)} outputs"
            raise WrongResult(f"{self._function} returned {found}, {wanted}")
        return list(returned)


def array_dtype(tensor: Tensor) -> np.dtype[Any]:
    """Return the dtype of a model's arrays for an input or an output."""
    return np.dtype("<f4" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.datatype.fixed and tensor.datatype.name != "BF16" and -1 not in tensor.shape


def _as_array(value: object, tensor: Tensor) -> tuple[Array, Array | None]:
    """Return a plain array, and its masked elements, if any may be."""
    try:
        # Left to itself numpy makes byte strings of a fixed length, without their last zeros.
        array = np.asarray(value) if tensor.datatype.fixed else np.asarray(value, dtype=object)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WrongResult(f"output {tensor.name!r} is no array: {error}") from None
    if array.dtype == object and not array.ndim and not isinstance(value, str | bytes | np.ndarray):
        # numpy puts an object that it cannot iterate by index, such as a generator, into an array
        # of no dimensions.
        found = type_in_words(value)
        raise WrongResult(f"output {tensor.name!r} is {found}, and no array")
    return array, np.ma.getmaskarray(value) if isinstance(value, np.ma.MaskedArray) else None


def _rows_apart(value: object, tensor: Tensor) -> list[tuple[Array, Array | None]]:
    """Return the rows of an output that may differ in shape; none if it is one array.

    Each row is as `_as_array` returns it.
    """
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1:
        value = value.tolist()
    if tensor.static or not isinstance(value, (list, tuple)):
        return []
    return [_row(row, tensor) for row in value]


def _row(value: object, tensor: Tensor) -> tuple[Array, Array | None]:
    array, masked = _as_array(value, tensor)
    if array.shape == (0,):
        # Of an empty list, numpy cannot know how deep it would be.
        array = array.reshape(0, *(max(size, 0) for size in tensor.shape[1:]))
    return array, masked if array.size else None


def _stacked(apart: list[tuple[Array, Array | None]]) -> Array:
    """Return rows of one shape as one array, masked if any of them is."""
    array = np.stack([row for row, _ in apart])
    if all(masked is None for _, masked in apart):
        return array
    masks = [np.zeros(row.shape, bool) if masked is None else masked for row, masked in apart]
    return np.ma.MaskedArray(array, np.stack(masks))


def _ragged(
    apart: list[tuple[Array, Array | None]], place: int, tensor: Tensor, count: int
) -> tuple[Ragged, list[Fault]]:
    """Return rows of different shapes in their datatype, and those that cannot be sent."""
    if len(apart) != count:
        raise WrongCount(f"output {tensor.name!r} has {len(apart)} rows for {count} instances")
    shapes = [_row_shape(row, tensor) for row, _ in apart]
    # Empty ones have no say in the datatype, see `_converted`.
    filled = [row.reshape(-1) for row, _ in apart if row.size]
    flat = np.concatenate(filled) if filled else np.empty(0, array_dtype(tensor))
    converted, beyond, beyond_words = _converted(flat, tensor)
    stops = list(accumulate(map(prod, shapes)))
    spans = [slice(stop - prod(shape), stop) for shape, stop in zip(shapes, stops, strict=True)]
    rows = [converted[span].reshape(shape) for span, shape in zip(spans, shapes, strict=True)]
    masked = np.array([mask is not None and bool(mask.any()) for _, mask in apart])
    wrong = np.array([beyond is not None and bool(beyond[span].any()) for span in spans])
    faults = [
        Fault(place, elements, WrongResult(f"output {tensor.name!r} holds {words}"))
        for elements, words in ((masked, "masked values"), (wrong, beyond_words))
        if elements.any()
    ]
    return Ragged(rows), faults


def _row_shape(row: Array, tensor: Tensor) -> tuple[int, ...]:
    if row.ndim != len(tensor.shape) or any(
        want not in (ANY, got) for want, got in zip(tensor.shape, row.shape, strict=True)
    ):
        raise WrongResult(
            f"a row of output {tensor.name!r} has shape {list(row.shape)}, declared is "
            f"{list(tensor.shape)}"
        )
    return row.shape


def _expect_shape(array: Array, tensor: Tensor, shape: tuple[int, ...]) -> None:
    fits = len(array.shape) == len(shape) and all(
        want in (-1, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if fits:
        return
    # What stands before the tensor's own sizes, if anything does, is the number of instances.
    rows = len(shape) - len(tensor.shape)
    counted = array.ndim == len(shape) and array.shape[:rows] != shape[:rows]
    raise (WrongCount if counted else WrongResult)(
        f"output {tensor.name!r} has shape {list(array.shape)}, declared is {list(shape)}"
    )


def _converted(array: Array, tensor: Tensor) -> tuple[Array, Array | None, str]:
    """Return an output in its datatype, a mask of elements without a value there, and why."""
    if not tensor.datatype.fixed:
        return _texts(array)
    target = array_dtype(tensor)
    # numpy takes any empty list for one of floating-point numbers.
    if array.size and not np.can_cast(array.dtype, target, casting="same_kind"):
        raise WrongResult(
            f"output {tensor.name!r} is {array.dtype}, declared is {tensor.datatype.name}"
        )
    converted = array.astype(target, copy=False)
    if tensor.datatype.name == "BF16":
        return narrowed(converted), None, ""
    if converted is array or target.kind not in "iu":
        return converted, None, ""
    beyond_words = f"numbers beyond the declared {tensor.datatype.name}"
    return converted, np.not_equal(converted, array), beyond_words


def _texts(array: Array) -> tuple[Array, Array | None, str]:
    texts: Array = np.empty(array.size, dtype=object)
    beyond, beyond_words = np.zeros(array.size, dtype=np.bool_), ""
    for place, element in enumerate(array.reshape(-1)):
        text = _text(element)
        if text is None:
            beyond[place] = True
            beyond_words = f"{type_in_words(element)}, declared is BYTES"
            if isinstance(element, str):
                beyond_words = "half of a surrogate pair, which UTF-8 does not have"
        texts[place] = text or b""
    return texts.reshape(array.shape), beyond.reshape(array.shape), beyond_words


def _text(element: object) -> bytes | None:
    """Return an element of a BYTES tensor; None if it is none."""
    if isinstance(element, bytes):
        return bytes(element)
    try:
        return str.encode(element) if isinstance(element, str) else None
    except UnicodeEncodeError:
        return None
