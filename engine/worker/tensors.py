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
from typing import Any, NamedTuple

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
"""Size of the length before each element of a BYTES tensor."""
_PLACEMENTS_KEPT = 1024
_SMALL_BYTES = 4096
_FRAMES_KEPT_BYTES = 1 << 20


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
        """Placements found valid, by rows and prefix."""

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
                placement = self._frame.place(rows, *self._frame.read_prefix(prefix))
            except FrameError:
                return None
            if not all(map(_sensible, placement.parts, self._frame.tensors)):
                return None
            if len(self._known) >= _PLACEMENTS_KEPT:
                self._known.clear()
            self._known[rows, prefix] = placement
        return placement if placement.size <= limit_bytes else None

    def gather(self, requests: list[Request], placements: list[Placement]) -> list[Array]:
        """Return an array for each input, [rows of all requests, ...], owned by the caller."""
        first = placements[0]
        starts = [request.request_offset for request in requests]
        if all(placement is first for placement in placements):
            return self._gathered(starts, first)
        columns = (
            self._gathered([start], placement)
            for start, placement in zip(starts, placements, strict=True)
        )
        return [joined(column) for column in zip(*columns, strict=True)]

    def gather_each(
        self, requests: list[Request]
    ) -> tuple[list[Request], list[Request], list[list[Array]]]:
        """Gather requests one by one: those that can be read, the others, and arrays of each."""
        readable, unreadable, rows = [], [], []
        for request in requests:
            placement = self.placement(request)
            try:
                if placement is None:
                    raise FrameError("the tensors do not lie within the payload")
                rows.append(self.gather([request], [placement]))
                readable.append(request)
            except FrameError:
                unreadable.append(request)
        return readable, unreadable, rows

    def gather_uniform(self, uniform: UniformBatch) -> list[Array] | None:
        """Gather uniform requests of a static frame; None if their sizes are not the model's."""
        sizes = uniform.sizes
        placement = self.placed(sizes.rows, b"", sizes.request_bytes)
        return None if placement is None else self._gathered(uniform.request_offsets, placement)

    def _gathered(self, starts: Sequence[int] | Array, placement: Placement) -> list[Array]:
        """Return an array for each input, for requests that are placed alike."""
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


class LaidOut(NamedTuple):
    """Rows of one request for all outputs, as they stand in its result memory.

    Attributes:
        placement: places of the outputs.
        prefix: words that open the frame.
        data: values of each output.
    """

    placement: Placement
    prefix: bytes
    data: list[Array | bytes]


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
        self._alike: AlikeFrames | None = None
        """The frames of the last rows that were alike."""

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
        if not self._frame.static and len(requests) == len(arrays[0]) and self._are_alike(arrays):
            frames = self._frames_of(arrays, len(requests))
            for request, frame in zip(requests, frames, strict=True):
                if len(frame) <= request.result_capacity:
                    start = request.result_offset
                    self._memory[start : start + len(frame)] = frame
            return [len(frame) for frame in frames]
        stops = accumulate([request.rows for request in requests])
        return [
            scatter_one([array[stop - request.rows : stop] for array in arrays], request)
            for request, stop in zip(requests, stops, strict=True)
        ]

    def parts(self, arrays: Sequence[Any], rows: Sequence[int]) -> Sequence[bytes | WrongResult]:
        """Return each request's rows as the bytes that `scatter` copies.

        Args:
            arrays: as for `scatter`.
            rows: of each request.
        """
        if len(rows) == len(arrays[0]) and self._are_alike(arrays):
            return self._frames_of(arrays, len(rows))
        stops = accumulate(rows)
        return [
            self._part([array[stop - own : stop] for array in arrays], own)
            for own, stop in zip(rows, stops, strict=True)
        ]

    def _are_alike(self, arrays: Sequence[Any]) -> bool:
        """Return whether all rows are alike: numbers of one shape, and no lengths of their own."""
        if len(arrays) != len(self._frame.tensors):
            return False
        return all(isinstance(one, np.ndarray) and one.dtype != object for one in arrays)

    def _frames_of(self, arrays: Sequence[Array], count: int) -> list[bytes]:
        """Return the frames of so many rows that are alike."""
        shapes = [array.shape[1:] for array in arrays]
        alike = self._alike
        if alike is None or alike.shapes != shapes or alike.room < count:
            dimensions = open_dimensions(self._frame.tensors, arrays)
            alike = AlikeFrames(self._frame, shapes, dimensions, count)
            self._alike = alike if alike.size <= _FRAMES_KEPT_BYTES else None
        return alike.filled(arrays, count)

    def _part(self, columns: Sequence[Column], rows: int) -> bytes | WrongResult:
        """Return the frame of one request."""
        try:
            laid = self._laid_out(columns, rows)
        except Uneven as uneven:
            return WrongResult(str(uneven))
        frame = bytearray(laid.placement.size)
        self._write_laid_out(laid, memoryview(frame), 0)
        return bytes(frame)

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
                    _write(rows, self._memory, start + offset)
        return placement.size

    def _scatter_many(self, array: Array, starts: Array, size: int) -> None:
        if size:
            rows = np.ascontiguousarray(array).reshape(len(starts), -1)
            self._views.of(size)[starts >> OFFSET_BITS] = rows.view(f"V{size}").reshape(-1)

    def _scatter_one(self, columns: Sequence[Column], request: Request) -> int | WrongResult:
        try:
            laid = self._laid_out(columns, request.rows)
        except Uneven as uneven:
            return WrongResult(str(uneven))
        if laid.placement.size <= request.result_capacity:
            self._write_laid_out(laid, self._memory, request.result_offset)
        return laid.placement.size

    def _laid_out(self, columns: Sequence[Column], rows: int) -> LaidOut:
        """Return one request's rows in the order of its frame; raises `Uneven`."""
        arrays = laid_out(columns, self._frame.tensors)
        data = [_encoded(array) if array.dtype == object else array for array in arrays]
        lengths = tuple(len(one) for one in data if isinstance(one, bytes))
        dimensions = open_dimensions(self._frame.tensors, arrays)
        placement = self._frame.place(rows, dimensions, lengths)
        return LaidOut(placement, self._frame.prefix(dimensions, lengths), data)

    @staticmethod
    def _write_laid_out(laid: LaidOut, memory: memoryview, start: int) -> None:
        memory[start : start + len(laid.prefix)] = laid.prefix
        for part, data in zip(laid.placement.parts, laid.data, strict=True):
            _write(data, memory, start + part.offset)

    def _scatter_fixed(self, arrays: list[Array], request: Request) -> int:
        placement = self._frame.place(request.rows)
        if placement.size <= request.result_capacity:
            for part, array in zip(placement.parts, arrays, strict=True):
                _write(array, self._memory, request.result_offset + part.offset)
        return placement.size


class AlikeFrames:
    """Frames of rows that differ in nothing but their numbers. A step's are mostly as those before.

    Attributes:
        shapes: of a row of each output.
        room: rows that there are frames for.
        size: bytes of all frames.

    Args:
        frame: the layout of a row.
        shapes, room: see above.
        dimensions: the open ones of every row.
    """

    def __init__(
        self,
        frame: Frame,
        shapes: list[tuple[int, ...]],
        dimensions: tuple[int, ...],
        room: int,
    ) -> None:
        self.shapes, self.room = shapes, room
        placement, prefix = frame.place(1, dimensions), frame.prefix(dimensions, ())
        size = placement.size
        self.size = room * size
        frames: NDArray[np.uint8] = np.zeros((room, size), np.uint8)
        frames[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        self._numbers = [frames[:, p.offset : p.offset + p.size] for p in placement.parts]
        self._rows: Array | None = None
        if size:
            # Each row is one item, which becomes bytes in one call for all.
            self._rows = frames.view(f"V{size}").reshape(room)

    def filled(self, arrays: Sequence[Array], count: int) -> list[bytes]:
        """Return frames for so many rows, no more than there is room for, from their arrays."""
        if self._rows is None:
            return [b""] * count
        for own, array in zip(self._numbers, arrays, strict=True):
            own[:count] = np.ascontiguousarray(array).reshape(count, -1).view(np.uint8)
        found: list[bytes] = self._rows[:count].tolist()
        return found


def _write(data: Array | bytes, memory: memoryview, start: int) -> None:
    if isinstance(data, bytes):
        memory[start : start + len(data)] = data
    elif data.nbytes <= _SMALL_BYTES:
        # An array over the memory costs more than these bytes do.
        memory[start : start + data.nbytes] = data.tobytes()
    else:
        np.ndarray(data.shape, data.dtype, memory, start)[...] = data


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
    """Return BF16 as float32, whose upper half it is; return other datatypes as they are stored."""
    if tensor.datatype.name == "BF16":
        return widened(values)
    return values


def _encoded(values: Array) -> bytes:
    """Return BYTES elements in V2's binary form: a 4-byte little-endian length before each."""
    pieces = []
    for data in values.reshape(-1):
        pieces += [len(data).to_bytes(_LENGTH_BYTES, "little"), data]
    return b"".join(pieces)
