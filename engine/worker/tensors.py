"""Gathering a batch out of the slots into arrays, and scattering results back.

Every payload byte is copied once. A lone request is one copy, and a few small ones are joined. For
more, payloads start on multiples of 64 bytes: all runs of n bytes that could be a payload are one
strided array of items of n bytes. The payloads of a batch are a selection from it, which one numpy
call copies, in any lanes. That holds if every request has the same number of rows and nothing of
its size is open; the others are copied one by one.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.ragged import Column, Uneven, laid_out
from ringbatch.shm.brain_floats import widened
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.frame import Frame, FrameError, PlacedTensor, Placement
from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.strided_view import OFFSET_BITS, StridedView
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import FEW, UniformBatch

Array = NDArray[Any]
_LENGTH_BYTES = 4
"""Before each element of a BYTES tensor."""
_PLACEMENTS_KEPT = 1024
_SMALL_BYTES = 4096


class Unlike(Exception):
    """The tensors of some requests cannot be put together: their shapes differ.

    The collector puts only equal ones into a batch, so a frontend has changed its own since.
    """


class Gatherer:
    """Reads the inputs of a typed model's batches."""

    def __init__(self, memory: memoryview, views: StridedView, inputs: Sequence[Tensor]) -> None:
        self._memory = memory
        self._views = views
        self._frame = Frame(inputs)
        self._dtypes = [_stored(tensor) for tensor in inputs]
        self._widens = any(tensor.datatype.name == "BF16" for tensor in inputs)
        self._known: dict[tuple[int, bytes], Placement] = {}
        """By rows and prefix, those found sensible."""

    @property
    def static(self) -> bool:
        """True if the places of a request's tensors follow from its rows alone."""
        return self._frame.static

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the words that open a request."""
        return self._frame.prefix_bytes

    def keep_stored(self) -> None:
        """Give BF16 as it is stored, as outputs are."""
        self._widens = False

    def placement(self, request: Request) -> Placement | None:
        """Return the places of a request's tensors; None if they would leave its payload."""
        start, prefix_bytes = request.request_offset, self._frame.prefix_bytes
        if prefix_bytes > request.request_bytes:
            return None
        prefix = bytes(self._memory[start : start + prefix_bytes])
        return self.placed(request.rows, prefix, request.request_bytes)

    def placed(self, rows: int, prefix: bytes, limit_bytes: int) -> Placement | None:
        """Return the places of the tensors of a frame with that prefix; None if they do not fit."""
        placement = self._known.get((rows, prefix))
        if placement is None:
            try:
                placement = self._frame.place(rows, *self._frame.read_prefix(prefix, 0))
            except FrameError:
                return None
            if not all(map(_sensible, placement.parts, self._frame.tensors)):
                return None
            if len(self._known) >= _PLACEMENTS_KEPT:
                self._known.clear()
            self._known[rows, prefix] = placement
        return placement if placement.size <= limit_bytes else None

    def gather(self, requests: list[Request], placements: list[Placement]) -> list[Array]:
        """One array an input, shape [rows of all requests, ...], owned by the caller."""
        first = placements[0]
        starts = [request.request_offset for request in requests]
        if all(placement is first for placement in placements):
            return self._gathered(starts, first)
        columns = (
            self._gathered([start], placement)
            for start, placement in zip(starts, placements, strict=True)
        )
        return [joined(column) for column in zip(*columns, strict=True)]

    def gather_uniform(self, uniform: UniformBatch) -> list[Array] | None:
        """Gather uniform requests of a static frame; None if their sizes are not the model's."""
        sizes = uniform.sizes
        placement = self.placed(sizes.rows, b"", sizes.request_bytes)
        return None if placement is None else self._gathered(uniform.request_offsets, placement)

    def _gathered(self, starts: Sequence[int] | Array, placement: Placement) -> list[Array]:
        """One array an input, for requests that are placed alike."""
        count, arrays = len(starts), []
        for part, dtype in zip(placement.parts, self._dtypes, strict=True):
            if dtype.hasobject:
                texts = [self._bytes(start + part.offset, part) for start in starts]
                array = texts[0] if count == 1 else joined(texts)
            elif count == 1:
                start = starts[0] + part.offset
                array = np.ndarray(part.shape, dtype, self._memory, start).copy()
            elif count <= FEW and part.size <= _SMALL_BYTES:
                array = self._joined(starts, part, dtype)
            else:
                array = self._selected(starts, part, dtype)
            arrays.append(array)
        return list(map(_widened, arrays, self._frame.tensors)) if self._widens else arrays

    def _joined(
        self, starts: Sequence[int] | Array, part: PlacedTensor, dtype: np.dtype[Any]
    ) -> Array:
        memory, offset, end = self._memory, part.offset, part.offset + part.size
        data = bytearray().join([memory[start + offset : start + end] for start in starts])
        return np.ndarray(_batch_shape(len(starts), part), dtype, data)

    def _selected(
        self, starts: Sequence[int] | Array, part: PlacedTensor, dtype: np.dtype[Any]
    ) -> Array:
        shape = _batch_shape(len(starts), part)
        if not part.size:
            return np.empty(shape, dtype)
        items = np.asarray(starts) + part.offset >> OFFSET_BITS
        picked: Array = self._views.of(part.size)[items].view(dtype)
        return picked.reshape(shape)

    def _bytes(self, start: int, part: PlacedTensor) -> Array:
        values: Array = np.empty(part.shape, dtype=object)
        flat = values.reshape(-1)
        at, end = start, start + part.size
        for index in range(flat.size):
            length = int.from_bytes(self._memory[at : min(at + _LENGTH_BYTES, end)], "little")
            at += _LENGTH_BYTES
            if at + length > end:
                raise FrameError("a BYTES tensor is shorter than its elements say")
            flat[index] = bytes(self._memory[at : at + length])
            at += length
        return values


class Scatterer:
    """Writes the outputs of a typed model's batches, as `outputs` gives them.

    Args:
        memory: the segment's.
        views: of that memory.
        tensors: what stands in results, see `ringbatch.shm.ragged.answered`.
    """

    def __init__(self, memory: memoryview, views: StridedView, tensors: Sequence[Tensor]) -> None:
        self._memory = memory
        self._views = views
        self._frame = Frame(tensors)

    def scatter(
        self, arrays: Sequence[Any], requests: list[Request]
    ) -> Sequence[int | WrongResult]:
        """Copy each request's rows into its result memory.

        Returns:
            For each request the bytes its result takes, or why it cannot be written. Where that is
            more than its result capacity, nothing was written for it.
        """
        scatter_one = self._scatter_fixed if self._frame.static else self._scatter_one
        if len(requests) == 1:
            return [scatter_one([*arrays], requests[0])]
        if self._has_even(arrays):
            return self._scatter_even(arrays, requests)
        stops = accumulate(request.rows for request in requests)
        return [
            scatter_one([array[stop - request.rows : stop] for array in arrays], request)
            for request, stop in zip(requests, stops, strict=True)
        ]

    def _has_even(self, arrays: Sequence[Any]) -> bool:
        """Return whether all rows are alike: numbers of one shape, and no lengths of their own."""
        if self._frame.static or len(arrays) != len(self._frame.tensors):
            return False
        return all(isinstance(one, np.ndarray) and one.dtype != object for one in arrays)

    def _scatter_even(self, arrays: Sequence[Array], requests: list[Request]) -> list[int]:
        """Scatter rows that are alike: frames of as many rows differ in their numbers alone."""
        frame, memory, sizes = self._frame, self._memory, []
        dimensions = open_dimensions(frame.tensors, arrays)
        prefix = frame.prefix(dimensions, ())
        stop = 0
        for request in requests:
            begin, stop = stop, stop + request.rows
            placement = frame.place(request.rows, dimensions)
            sizes.append(placement.size)
            if placement.size > request.result_capacity:
                continue
            start = request.result_offset
            memory[start : start + len(prefix)] = prefix
            for part, array in zip(placement.parts, arrays, strict=True):
                self._write(array[begin:stop], start + part.offset)
        return sizes

    def scatter_uniform(self, arrays: list[Array], uniform: UniformBatch) -> int | None:
        """Scatter to uniform requests; return the bytes of each result.

        It returns None, with nothing written, if these may differ.
        """
        if not self._frame.static:
            return None
        _, _, sizes, starts, distance = uniform
        placement = self._frame.place(sizes.rows)
        if placement.size > sizes.result_capacity:
            return placement.size
        for part, array in zip(placement.parts, arrays, strict=True):
            offset = distance + part.offset
            if len(starts) > FEW:
                self._scatter_many(array, np.asarray(starts) + offset, part.size)
            elif part.size <= _SMALL_BYTES:
                memory, size, data = self._memory, part.size, array.tobytes()
                at = 0
                for start in starts:
                    start += offset
                    memory[start : start + size] = data[at : at + size]
                    at += size
            else:
                for number, start in enumerate(starts):
                    rows = array[number * sizes.rows : (number + 1) * sizes.rows]
                    self._write(rows, start + offset)
        return placement.size

    def _scatter_many(self, array: Array, starts: Array, size: int) -> None:
        if size:
            rows = np.ascontiguousarray(array).reshape(len(starts), -1)
            self._views.of(size)[starts >> OFFSET_BITS] = rows.view(f"V{size}").reshape(-1)

    def _scatter_one(self, columns: Sequence[Column], request: Request) -> int | WrongResult:
        try:
            arrays = laid_out(columns, self._frame.tensors)
        except Uneven as uneven:
            return WrongResult(str(uneven))
        texts = [_encoded(a) if a.dtype == object else None for a in arrays]
        lengths = tuple(len(text) for text in texts if text is not None)
        dimensions = open_dimensions(self._frame.tensors, arrays)
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


def open_dimensions(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the open dimensions of arrays, in the order of the signature."""
    return tuple(
        size
        for tensor, array in zip(tensors, arrays, strict=True)
        for size, declared in zip(array.shape[1:], tensor.shape, strict=True)
        if declared < 0
    )


def joined(arrays: Sequence[Array]) -> Array:
    """Return the rows of all arrays in one.

    Raises:
        Unlike: their rows have different shapes.
    """
    try:
        return np.concatenate(arrays)
    except ValueError as error:
        raise Unlike(str(error)) from None


def _batch_shape(count: int, part: PlacedTensor) -> tuple[int, ...]:
    rows, *sizes = part.shape
    return (count * rows, *sizes)


def _sensible(part: PlacedTensor, tensor: Tensor) -> bool:
    """Return whether an array can have a shape, also if no bytes bound it."""
    count = prod(part.shape)
    if not count:
        return prod(size or 1 for size in part.shape) <= MAX_BYTES
    return tensor.datatype.fixed or count * _LENGTH_BYTES <= part.size


def _stored(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype("<u2" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)


def _widened(values: Array, tensor: Tensor) -> Array:
    """BF16 as float32, whose upper half it is; everything else as it is stored."""
    if tensor.datatype.name == "BF16":
        return widened(values)
    return values


def _encoded(values: Array) -> bytes:
    """BYTES elements in V2's binary form: a 4-byte little-endian length before each."""
    pieces = []
    for data in values.reshape(-1):
        pieces += [len(data).to_bytes(_LENGTH_BYTES, "little"), data]
    return b"".join(pieces)
