"""The run of one batch on a device: rows in, the model, outputs out.

The law: the device neither reads nor writes a request's memory once that request is answered. So
nothing leaves `BatchRun.predict` before an event behind its last copy has passed, neither outputs
nor an exception. For the same reason no batch finds another one in its buffers.

Large rows go from requests' memory to the device without a copy by the CPU. The CPU gathers small
ones in page-locked memory, because a copy's call costs more than their bytes. `BatchRun.measure`
finds out which is quicker. If the device cannot read requests' memory, the CPU gathers all rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.devices.port import Device, Locked, Piece, Refused
from ringbatch.shm.brain_floats import narrowed
from ringbatch.shm.layout import aligned
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]
T = TypeVar("T")

_ROUNDS: Final = 5
"""Measurements of each way; the quickest counts."""


class Rows(NamedTuple):
    """Rows of one input, where they stand in requests' memory.

    Attributes:
        starts: of each request's rows, in bytes of the segment.
        sizes: bytes of each request's rows.
        rows: of all requests.
        spare: how often the last row is repeated behind them.
    """

    starts: Sequence[int]
    sizes: Sequence[int]
    rows: int
    spare: int = 0


def is_placeable(tensors: Sequence[Tensor]) -> bool:
    """Return whether rows of these tensors all have one size in bytes, known before any comes."""
    return all(t.static and t.datatype.fixed and prod(t.shape) for t in tensors)


def row_bytes(tensor: Tensor) -> int:
    """Return the bytes of one row of a tensor that `is_placeable`."""
    return stored_dtype(tensor).itemsize * prod(tensor.shape)


def stored_dtype(tensor: Tensor) -> np.dtype[Any]:
    """Return the dtype of a tensor as it stands in memory; of BF16 that of its bits."""
    return np.dtype("<u2" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)


class BatchRun:
    """The way of a model's batches through its device.

    Args:
        device: holds the model.
        inputs: of the model; they are placeable.
        memory: the segment's.
        payload_byte: where requests' memory starts in it; it goes on to the end.
    """

    def __init__(
        self, device: Device, inputs: Sequence[Tensor], memory: memoryview, payload_byte: int
    ) -> None:
        self._device = device
        self._inputs = tuple(inputs)
        self._row_bytes = [row_bytes(tensor) for tensor in inputs]
        self._memory = memory
        self._payload_byte = payload_byte
        self._requests: Locked | None = None
        self._straight = [False] * len(self._inputs)
        self._buffers: Sequence[Any] = ()
        self._rows = 0
        self._block: Locked | None = None
        self._graphs: dict[int, Any] = {}

    @property
    def straight(self) -> list[str]:
        """Names of the inputs whose rows the device takes out of requests' memory."""
        pairs = zip(self._inputs, self._straight, strict=True)
        return [tensor.name for tensor, straight in pairs if straight]

    @property
    def gathered(self) -> list[str]:
        """Names of the inputs whose rows the CPU gathers."""
        return [tensor.name for tensor in self._inputs if tensor.name not in self.straight]

    def register(self) -> None:
        """Have the device read requests' memory by itself.

        Raises:
            Refused: it does not; the CPU gathers all rows then.
        """
        memory = np.frombuffer(self._memory, np.uint8)[self._payload_byte :]
        self._requests = self._device.register(memory)

    def close(self) -> None:
        """Let go of requests' memory; no batch may be run after that."""
        self._device.drain()
        self._requests = None
        self._device.unregister()

    def measure(self, rows: int, clock_ns: Callable[[], int]) -> None:
        """Find for each input which way is quicker for so many requests of one row.

        The rows are zeros in page-locked memory, and no request's.

        Raises:
            Refused: the device cannot read requests' memory.
            MemoryError: there is too little memory for so many rows.
        """
        if self._requests is None:
            raise Refused("requests' memory is not registered")
        self._device.attempt(partial(self._measure, rows, clock_ns))
        self._block = None

    def _measure(self, rows: int, clock_ns: Callable[[], int]) -> None:
        device = self._device
        buffers = self._room_for(rows)
        for place, (size, buffer) in enumerate(zip(self._row_bytes, buffers, strict=True)):
            block = self._block_of(rows * size)
            source = np.zeros(rows * size, np.uint8)
            singles = [Piece(row * size, size, row * size) for row in range(rows)]

            def one_by_one(
                block: Locked = block, pieces: Sequence[Piece] = singles, buffer: Any = buffer
            ) -> None:
                device.copy_in(block, pieces, buffer)

            def gathered(
                block: Locked = block,
                source: NDArray[np.uint8] = source,
                pieces: Sequence[Piece] = singles,
                buffer: Any = buffer,
            ) -> None:
                for start, length, _ in pieces:
                    block.array[start : start + length] = source[start : start + length]
                device.copy_in(block, [Piece(0, len(source), 0)], buffer)

            straight_ns = min(self._time_ns(one_by_one, clock_ns) for _ in range(_ROUNDS))
            gathered_ns = min(self._time_ns(gathered, clock_ns) for _ in range(_ROUNDS))
            self._straight[place] = straight_ns <= gathered_ns

    def _time_ns(self, begin: Callable[[], object], clock_ns: Callable[[], int]) -> int:
        began_ns = clock_ns()

        def copied() -> None:
            begin()
            self._device.copied_in().synchronize()

        self._drained(copied)
        return clock_ns() - began_ns

    def capture(self, rows: int) -> None:
        """Make a graph for batches of so many rows; its exceptions are those of the model.

        It runs the model on what the buffers hold, so a batch of at least so many rows must have
        been run.
        """
        assert rows <= self._rows, "a batch of that size was run before"
        capture = partial(self._device.capture, self._buffers, rows)
        self._graphs[rows] = self._device.attempt(partial(self._drained, capture))

    def drop_graphs(self) -> None:
        """Run every batch without a graph from now on."""
        self._graphs.clear()

    def predict(self, *inputs: Rows | Array) -> Any:
        """Run a batch; the model's outputs as arrays.

        Args:
            inputs: for each input its rows, where they stand or as an array.

        Raises:
            MemoryError: the device has too little memory for so many rows.
            RestartWorker: the device has failed for good.
        """
        return self._device.attempt(partial(self._drained, partial(self._predict, inputs)))

    def _drained(self, run: Callable[[], T]) -> T:
        """Call a function; if it fails, the device has let go of all it had begun."""
        try:
            return run()
        except BaseException:
            self._device.drain()
            raise

    def _predict(self, inputs: Sequence[Rows | Array]) -> Any:
        device = self._device
        rows = _count(inputs[0])
        buffers = self._room_for(rows)
        self._copy_in(inputs, buffers)
        behind = device.copied_in()
        graph = self._graphs.get(rows)
        if graph is None:
            outputs = device.run(buffers, rows, behind)
        else:
            outputs = device.replay(graph, behind)
        copied = device.copy_out(outputs)
        device.copied_out().synchronize()
        return device.read(copied)

    def _copy_in(self, inputs: Sequence[Rows | Array], buffers: Sequence[Any]) -> None:
        device, first = self._device, self._payload_byte
        straight = [
            self._requests if chosen and isinstance(one, Rows) else None
            for one, chosen in zip(inputs, self._straight, strict=True)
        ]
        sizes = [
            aligned(_count(one) * size)
            for one, size, source in zip(inputs, self._row_bytes, straight, strict=True)
            if source is None
        ]
        block = self._block_of(sum(sizes)) if sizes else None
        end = 0
        for place, (given, buffer) in enumerate(zip(inputs, buffers, strict=True)):
            source = straight[place]
            if source is not None and isinstance(given, Rows):
                pieces, at = [], 0
                for start, size in zip(given.starts, given.sizes, strict=True):
                    pieces.append(Piece(start - first, size, at))
                    at += size
                device.copy_in(source, pieces, buffer)
            elif block is not None:
                size = self._staged(given, self._inputs[place], block.array[end:])
                device.copy_in(block, [Piece(end, size, 0)], buffer)
                end = aligned(end + size)
            if isinstance(given, Rows) and given.spare:
                device.repeat(buffer, given.rows - 1, given.rows + given.spare)

    def _staged(self, given: Rows | Array, tensor: Tensor, into: NDArray[np.uint8]) -> int:
        """Copy an input into page-locked memory, without spare rows; return its bytes."""
        if isinstance(given, Rows):
            target, memory, end = into.data, self._memory, 0
            for start, size in zip(given.starts, given.sizes, strict=True):
                target[end : end + size] = memory[start : start + size]
                end += size
            return end
        array = given
        if tensor.datatype.name == "BF16" and array.dtype.kind == "f":
            array = narrowed(array)
        data = np.ascontiguousarray(array, stored_dtype(tensor)).reshape(-1).view(np.uint8)
        into[: len(data)] = data
        return len(data)

    def _room_for(self, rows: int) -> Sequence[Any]:
        """Return buffers for so many rows; graphs go with the buffers that they read."""
        if rows > self._rows:
            self._graphs.clear()
            self._buffers, self._rows = (), 0
            self._buffers = self._device.buffers(self._inputs, rows)
            self._rows = rows
        return self._buffers

    def _block_of(self, size: int) -> Locked:
        """Return page-locked memory of at least so many bytes; nothing that has begun reads it."""
        block = self._block
        if block is None or len(block.array) < size:
            self._block = None
            block = self._block = self._device.block(size)
        return block


def _count(given: Rows | Array) -> int:
    return given.rows + given.spare if isinstance(given, Rows) else len(given)
