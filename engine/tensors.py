"""Gathering a batch out of the slots into arrays, and scattering results back.

All payloads start on multiples of 64 bytes. So all runs of n bytes that could be a payload are
one strided array of items of n bytes, and the payloads of a batch are a selection from it: one
numpy call copies the whole batch, whatever lanes its requests lie in. That holds where every
request has the same number of rows and nothing of its size is open; the others are copied one by
one.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.frame import Frame, FrameError, Part, Placement
from ringbatch.shm.holder import Alike, Request
from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.windows import OFFSET_BITS, Windows

Array = NDArray[Any]
_LENGTH_BYTES = 4
"""Before each element of a BYTES tensor."""
_PLACEMENTS_KEPT = 1024
_SMALL_BYTES = 4096


class WrongResult(Exception):
    """What the model returned is not what its signature says."""


class WrongCount(WrongResult):
    """It is for another number of instances than the model was given."""


class Unlike(Exception):
    """The tensors of some requests cannot be put together: their shapes differ.

    The collector puts only equal ones into a batch, so a frontend has changed its own since.
    """


class Gatherer:
    """Reads the inputs of a typed model's batches."""

    def __init__(self, memory: memoryview, windows: Windows, inputs: Sequence[Tensor]) -> None:
        self._memory = memory
        self._windows = windows
        self._frame = Frame(inputs)
        self._stored = [_stored(tensor) for tensor in inputs]
        self._by_rows: dict[int, Placement] = {}
        """Of a static frame, those found sensible."""

    def placement(self, request: Request) -> Placement | None:
        """Where a request's tensors lie; None where they would not lie within its payload."""
        placement = self._by_rows.get(request.rows)
        if placement is not None:
            return placement if placement.size <= request.request_bytes else None
        try:
            if self._frame.static:
                placement = self._frame.place(request.rows)
            else:
                prefix = self._frame.prefix_bytes
                if prefix > request.request_bytes:
                    return None
                dimensions, lengths = self._frame.read_prefix(self._memory, request.request_offset)
                placement = self._frame.place(request.rows, dimensions, lengths)
        except FrameError:
            return None
        if placement.size > request.request_bytes:
            return None
        if not all(map(_sensible, placement.parts, self._frame.tensors)):
            return None
        if self._frame.static and len(self._by_rows) < _PLACEMENTS_KEPT:
            self._by_rows[request.rows] = placement
        return placement

    def gather(self, requests: list[Request], placements: list[Placement]) -> list[Array]:
        """One array an input, shape [rows of all requests, ...], owned by the caller."""
        first = placements[0]
        if len(requests) == 1:
            return [
                self._copy(requests[0].request_offset, first, index, tensor)
                for index, tensor in enumerate(self._frame.tensors)
            ]
        if all(placement is first for placement in placements):
            return self._select_all(
                np.array([request.request_offset for request in requests]), first
            )
        return [
            joined(
                [
                    self._copy(request.request_offset, placement, index, tensor)
                    for request, placement in zip(requests, placements, strict=True)
                ]
            )
            for index, tensor in enumerate(self._frame.tensors)
        ]

    def gather_alike(self, alike: Alike) -> list[Array] | None:
        """`gather` for requests of the same sizes; None where those sizes are not the model's."""
        if not self._frame.static:
            return None
        placement = self._frame.place(alike.rows)
        if placement.size > alike.request_bytes:
            return None
        return self._select_all(alike.request_offsets, placement)

    def _select_all(self, starts: Array, placement: Placement) -> list[Array]:
        return [
            self._select(starts + part.offset, tensor, part.size, part.shape)
            for part, tensor in zip(placement.parts, self._frame.tensors, strict=True)
        ]

    def _select(self, starts: Array, tensor: Tensor, size: int, shape: tuple[int, ...]) -> Array:
        batch_shape = (len(starts) * shape[0], *shape[1:])
        if not tensor.datatype.fixed:
            values = [self._bytes(int(start), size, shape) for start in starts]
            return np.concatenate(values)
        if not size:
            return np.empty(batch_shape, dtype=array_dtype(tensor))
        picked = self._windows.of(size)[starts >> OFFSET_BITS]
        return _widened(picked.view(_stored(tensor)).reshape(batch_shape), tensor)

    def _copy(self, start: int, placement: Placement, index: int, tensor: Tensor) -> Array:
        part = placement.parts[index]
        if not tensor.datatype.fixed:
            return self._bytes(start + part.offset, part.size, part.shape)
        stored: Array = np.ndarray(
            part.shape, self._stored[index], self._memory, start + part.offset
        )
        return _widened(stored.copy(), tensor)

    def _bytes(self, start: int, size: int, shape: tuple[int, ...]) -> Array:
        values: Array = np.empty(shape, dtype=object)
        flat = values.reshape(-1)
        at, end = start, start + size
        for index in range(flat.size):
            length = int.from_bytes(self._memory[at : min(at + _LENGTH_BYTES, end)], "little")
            at += _LENGTH_BYTES
            if at + length > end:
                raise FrameError("a BYTES tensor is shorter than its elements say")
            flat[index] = bytes(self._memory[at : at + length])
            at += length
        return values


class Scatterer:
    """Writes the outputs of a typed model's batches.

    Args:
        memory: the segment's.
        windows: of that memory.
        outputs: the model's.
        batched: whether what the model returns has a batch dimension.
    """

    def __init__(
        self,
        memory: memoryview,
        windows: Windows,
        outputs: Sequence[Tensor],
        *,
        batched: bool = True,
    ) -> None:
        self._memory = memory
        self._windows = windows
        self._batched = batched
        self._frame = Frame(outputs)
        self._only: tuple[tuple[int, ...], np.dtype[Any]] | None = None
        """Shape and dtype of the only output, where an array of these needs no conversion."""
        usual = self._frame.static and batched
        if len(outputs) == 1 and usual and outputs[0].datatype.name != "BF16":
            self._only = outputs[0].shape, array_dtype(outputs[0])

    def arrays(self, returned: object, rows: int) -> list[Array]:
        """What `predict` returned as one array an output, in the declared datatype, with rows.

        Raises:
            WrongResult: where it is not what the signature says, in words.
        """
        if self._only is not None and isinstance(returned, np.ndarray):
            shape, dtype = self._only
            if returned.dtype == dtype and returned.shape == (rows, *shape):
                return [returned]
        tensors = self._frame.tensors
        outputs = zip(_by_output(returned, tensors), tensors, strict=True)
        if not self._batched:
            return [_checked(value, tensor, tensor.shape)[np.newaxis] for value, tensor in outputs]
        return [_checked(value, tensor, (rows, *tensor.shape)) for value, tensor in outputs]

    def scatter(self, arrays: list[Array], requests: list[Request]) -> list[int]:
        """Copy each request's rows into its result memory.

        Returns:
            For each request the bytes its result takes. Where that is more than its result
            capacity, nothing was written for it.
        """
        scatter_one = self._scatter_fixed if self._frame.static else self._scatter_one
        if len(requests) == 1:
            return [scatter_one(arrays, requests[0])]
        stops = accumulate(request.rows for request in requests)
        return [
            scatter_one([array[stop - request.rows : stop] for array in arrays], request)
            for request, stop in zip(requests, stops, strict=True)
        ]

    def fits(self, alike: Alike) -> bool:
        """Whether `scatter_alike` can be used for these requests."""
        if not self._frame.static:
            return False
        return self._frame.place(alike.rows).size <= alike.result_capacity

    def scatter_alike(self, arrays: list[Array], alike: Alike) -> int:
        """`scatter` for requests of the same sizes, where they have the room: the bytes of each."""
        placement = self._frame.place(alike.rows)
        count = len(alike.result_offsets)
        for part, array in zip(placement.parts, arrays, strict=True):
            if part.size:
                rows = np.ascontiguousarray(array).reshape(count, -1)
                target = self._windows.of(part.size)
                starts = (alike.result_offsets + part.offset) >> OFFSET_BITS
                target[starts] = rows.view(f"V{part.size}").reshape(-1)
        return placement.size

    def _scatter_one(self, arrays: list[Array], request: Request) -> int:
        texts = [_encoded(a) if a.dtype == object else None for a in arrays]
        lengths = tuple(len(text) for text in texts if text is not None)
        dimensions = tuple(
            size
            for tensor, array in zip(self._frame.tensors, arrays, strict=True)
            for size, declared in zip(array.shape[1:], tensor.shape, strict=True)
            if declared < 0
        )
        placement = self._frame.place(request.rows, dimensions, lengths)
        if placement.size > request.result_capacity:
            return placement.size
        start = request.result_offset
        prefix = self._frame.prefix(dimensions, lengths)
        self._memory[start : start + len(prefix)] = prefix
        for part, array, text in zip(placement.parts, arrays, texts, strict=True):
            if text is not None:
                self._memory[start + part.offset : start + part.offset + part.size] = text
            else:
                self._write(array, start + part.offset)
        return placement.size

    def _scatter_fixed(self, arrays: list[Array], request: Request) -> int:
        placement = self._frame.place(request.rows)
        if placement.size <= request.result_capacity:
            for part, array in zip(placement.parts, arrays, strict=True):
                self._write(array, request.result_offset + part.offset)
        return placement.size

    def _write(self, array: Array, start: int) -> None:
        size = array.nbytes
        if size <= _SMALL_BYTES:
            # An array over the memory costs more than these bytes do.
            self._memory[start : start + size] = array.tobytes()
        else:
            np.ndarray(array.shape, array.dtype, self._memory, start)[...] = array


def joined(arrays: Sequence[Array]) -> Array:
    """The rows of all arrays in one.

    Raises:
        Unlike: where their rows have different shapes.
    """
    try:
        return np.concatenate(arrays)
    except ValueError as error:
        raise Unlike(str(error)) from None


def _sensible(part: Part, tensor: Tensor) -> bool:
    """Whether a shape is one that an array can have, also where no bytes bound it."""
    count = prod(part.shape)
    if not count:
        return prod(size or 1 for size in part.shape) <= MAX_BYTES
    return tensor.datatype.fixed or count * _LENGTH_BYTES <= part.size


def _stored(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype("<u2" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)


def array_dtype(tensor: Tensor) -> np.dtype[Any]:
    """Of the arrays that a model gets for an input."""
    return np.dtype("<f4" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)


def _widened(values: Array, tensor: Tensor) -> Array:
    """BF16 as float32, whose upper half it is; everything else as it is stored."""
    if tensor.datatype.name == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    return values


def _by_output(returned: object, tensors: tuple[Tensor, ...]) -> list[object]:
    if isinstance(returned, dict):
        names = [tensor.name for tensor in tensors]
        if set(returned) != set(names):
            given = sorted(map(str, returned))
            raise WrongResult(f"predict returned outputs {given}, declared are {names}")
        return [returned[name] for name in names]
    if len(tensors) == 1:
        return [returned]
    if not isinstance(returned, (tuple, list)) or len(returned) != len(tensors):
        found = f"{len(returned)} values" if isinstance(returned, (tuple, list)) else "one value"
        raise WrongResult(f"predict returned {found}, declared are {len(tensors)} outputs")
    return list(returned)


def _checked(value: object, tensor: Tensor, shape: tuple[int, ...]) -> Array:
    array = _as_array(value, tensor)
    fits = len(array.shape) == len(shape) and all(
        want in (-1, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        # What stands before the tensor's own sizes, if anything does, is the number of instances.
        rows = len(shape) - len(tensor.shape)
        counted = array.ndim == len(shape) and array.shape[:rows] != shape[:rows]
        raise (WrongCount if counted else WrongResult)(
            f"output {tensor.name!r} has shape {list(array.shape)}, declared is {list(shape)}"
        )
    if not tensor.datatype.fixed:
        for element in array.reshape(-1):
            if not isinstance(element, (bytes, str)):
                kind = type(element).__name__
                raise WrongResult(f"output {tensor.name!r} holds a {kind}, declared is BYTES")
        return array
    target = array_dtype(tensor)
    if not np.can_cast(array.dtype, target, casting="same_kind"):
        raise WrongResult(
            f"output {tensor.name!r} is {array.dtype}, declared is {tensor.datatype.name}"
        )
    converted = array.astype(target, copy=False)
    if converted is not array and target.kind in "iu" and not np.array_equal(converted, array):
        raise WrongResult(
            f"output {tensor.name!r} holds numbers beyond the declared {tensor.datatype.name}"
        )
    if tensor.datatype.name == "BF16":
        return (converted.view("<u4") >> 16).astype("<u2")
    return converted


def _as_array(value: object, tensor: Tensor) -> Array:
    try:
        # Left to itself numpy makes byte strings of a fixed length, without their last zeros.
        return np.asarray(value) if tensor.datatype.fixed else np.asarray(value, dtype=object)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WrongResult(f"output {tensor.name!r} is no array: {error}") from None


def _encoded(values: Array) -> bytes:
    """BYTES elements in V2's binary form: a 4-byte little-endian length before each."""
    pieces = []
    for value in values.reshape(-1):
        data = value.encode() if isinstance(value, str) else bytes(value)
        pieces += [len(data).to_bytes(4, "little"), data]
    return b"".join(pieces)
