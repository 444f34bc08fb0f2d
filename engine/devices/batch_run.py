"""The run of one batch on a device: rows in, the model, outputs out.

The law: the device of a living process neither reads nor writes a request's memory once that
request is answered. So nothing leaves `BatchRun.finish` before an event behind the batch's last
copy has passed, neither outputs nor an exception. An exception leaves once the device has let go of
all that has begun.

Two batches may be under way. Each has a set of buffers for itself, so that no batch finds another
one in its buffers. The runs of both are in one queue. So are the copies of their outputs, each
before any later run: graphs may share the memory of their outputs.

Large rows go from requests' memory to the device without a copy by the CPU. The CPU gathers small
ones in page-locked memory, because a copy's call costs more than their bytes. `BatchRun.measure`
finds out which is quicker. If the device cannot read requests' memory, the CPU gathers all rows.

Outputs come back into memory of this process alone. A device may go on for a while behind the end
of its process, when the requests are another worker's. Reads harm nobody then, and writes would.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.devices.buffer_set import BufferSet
from ringbatch.engine.devices.port import Device, Event, Locked, Mark, Piece
from ringbatch.shm.brain_floats import narrowed
from ringbatch.shm.layout import aligned
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]
T = TypeVar("T")
_Source = tuple[Locked, Sequence[Piece]]
"""Memory that the device copies from, and the copies."""

SETS: Final = 2
"""Batches that may be under way, as each has a set of buffers."""
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


class Lost(Exception):
    """Raised in place of a batch's outputs if the device failed while another was under way."""


class UnderWay:
    """A batch that has begun and is not finished.

    Attributes:
        buffers: its set.
        copied: its outputs as `Device.read` takes them.
        behind: the event behind its last copy.
        copies: of each queue, the mark in front of its copies and the event behind them.
        lost: True if the device failed while several were under way. Nobody knows whose failure it
            was, so each must be run again, by itself.
    """

    __slots__ = ("behind", "buffers", "copied", "copies", "lost")

    def __init__(
        self, buffers: BufferSet, copied: Any, behind: Event, copies: Sequence[tuple[Mark, Event]]
    ) -> None:
        self.buffers = buffers
        self.copied = copied
        self.behind = behind
        self.copies = copies
        self.lost = False


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

    Attributes:
        under_way: the batches that have begun and are not finished, the first one first.
        copy_ns: how long the device copied rows and outputs of the batch that was finished last.

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
        self._row_ns = 0.0
        self._free = deque(BufferSet(device, self._inputs) for _ in range(SETS))
        """Sets that no batch has, the one that has been free for longest first."""
        self.under_way: list[UnderWay] = []
        self.copy_ns = 0

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
            MemoryRefused: it does not; the CPU gathers all rows then.
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

        The rows are zeros in page-locked memory, and no request's. If requests' memory is not
        registered, only one way is left, and only its time is found.

        Raises:
            MemoryError: there is too little memory for so many rows.
        """
        own = self._free[0]
        copies_ns = self._device.attempt(partial(self._measure, own, rows, clock_ns))
        self._row_ns = copies_ns / rows
        own.drop_block()

    def copies_ns(self, rows: int) -> int:
        """Return how long copies of so many rows to the device take, as `measure` found it."""
        return round(rows * self._row_ns)

    def _measure(self, own: BufferSet, rows: int, clock_ns: Callable[[], int]) -> int:
        device, whole_ns = self._device, 0
        buffers = own.room_for(rows)
        for place, (size, buffer) in enumerate(zip(self._row_bytes, buffers, strict=True)):
            block = own.block_of(rows * size)
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

            quickest_ns = min(self._time_ns(gathered, clock_ns) for _ in range(_ROUNDS))
            if self._requests is not None:
                straight_ns = min(self._time_ns(one_by_one, clock_ns) for _ in range(_ROUNDS))
                self._straight[place] = straight_ns <= quickest_ns
                quickest_ns = min(quickest_ns, straight_ns)
            whole_ns += quickest_ns
        return whole_ns

    def _time_ns(self, begin: Callable[[], object], clock_ns: Callable[[], int]) -> int:
        began_ns = clock_ns()

        def copied() -> None:
            begin()
            self._device.copied_in().synchronize()

        self._drained(copied)
        return clock_ns() - began_ns

    def capture(self, rows: int) -> None:
        """Make a graph for batches of so many rows, one for each set of buffers.

        Its exceptions are those of the model. It runs the model on what the buffers hold, so `SETS`
        batches of at least so many rows must have been run, one after another.
        """
        assert not self.under_way, "no batch is under way"
        for own in self._free:
            assert rows <= own.rows, "batches of that size were run before"
            capture = partial(self._device.capture, own.buffers, rows)
            own.graphs[rows] = self._device.attempt(partial(self._drained, capture))

    def drop_graphs(self) -> None:
        """Run every batch without a graph from now on."""
        assert not self.under_way, "no batch is under way"
        for own in self._free:
            own.graphs.clear()

    def predict(self, *inputs: Rows | Array) -> Any:
        """Run a batch; the model's outputs as arrays.

        Batches that are run one after another have the sets of buffers in turn.

        Args:
            inputs: for each input its rows, where they stand or as an array.

        Raises:
            MemoryError: the device has too little memory for so many rows.
            RestartWorker: the device has failed for good.
        """
        return self.finish(self.begin(*inputs))

    def begin(self, *inputs: Rows | Array) -> UnderWay:
        """Begin a batch; it is to be finished. At most `SETS` may be under way.

        Requests' memory is the device's until `finish` has returned or raised. If this raises,
        nothing of the batch is under way.

        Args, Raises: as of `predict`.
        """
        assert self._free, "a batch that is under way must be finished first"
        own = self._free.popleft()
        try:
            begun = self._device.attempt(partial(self._drained, partial(self._begin, inputs, own)))
        except BaseException:
            self._free.appendleft(own)
            raise
        self.under_way.append(begun)
        return begun

    def passed(self, one: UnderWay) -> bool:
        """Return whether `finish` of a batch would not wait; it raises as `predict`."""
        return self._device.attempt(one.behind.passed)

    def wait(self, one: UnderWay) -> None:
        """Wait until a batch's outputs are there; if this raises as `predict`, it is lost."""
        try:
            self._device.attempt(partial(self._drained, partial(self._wait, one)))
        except BaseException:
            one.lost = True
            raise

    def finish(self, one: UnderWay) -> Any:
        """Return the outputs of a batch as arrays, once they are there.

        Raises:
            Lost: the device failed while another batch was under way.
            MemoryError, RestartWorker: as of `predict`.
        """
        try:
            return self._device.attempt(partial(self._drained, partial(self._finish, one)))
        finally:
            self.under_way.remove(one)
            self._free.append(one.buffers)

    def _finish(self, one: UnderWay) -> Any:
        if one.lost:
            raise Lost("the device failed while this batch and another one were under way")
        self._wait(one)
        self.copy_ns = sum(behind.since_ns(mark) for mark, behind in one.copies)
        return self._device.read(one.copied)

    def _wait(self, one: UnderWay) -> None:
        try:
            one.behind.synchronize()
        except BaseException:
            self._lose()
            raise

    def _lose(self) -> None:
        """Record a failure that may be of any batch under way, if there are several."""
        if len(self.under_way) > 1:
            for one in self.under_way:
                one.lost = True

    def _drained(self, run: Callable[[], T]) -> T:
        """Call a function; if it fails, the device has let go of all it had begun."""
        try:
            return run()
        except BaseException:
            try:
                self._device.drain()
            except BaseException:
                for one in self.under_way:
                    one.lost = True
                raise
            raise

    def _begin(self, inputs: Sequence[Rows | Array], own: BufferSet) -> UnderWay:
        device = self._device
        rows = _count(inputs[0])
        buffers = own.room_for(rows)
        sources = self._sources(inputs, own)
        began = device.mark_in()
        self._copy_in(inputs, own, sources)
        behind = device.copied_in()
        graph = own.graphs.get(rows)
        if graph is None:
            outputs = device.run(buffers, rows, behind)
        else:
            outputs = device.replay(graph, behind)
        ran = device.mark_out()
        copied = device.copy_out(outputs)
        end = device.copied_out()
        return UnderWay(own, copied, end, ((began, behind), (ran, end)))

    def _sources(self, inputs: Sequence[Rows | Array], own: BufferSet) -> Sequence[_Source]:
        """Return where the device is to copy each input from, once the CPU has gathered it."""
        first = self._payload_byte
        straight = [
            self._requests if chosen and isinstance(one, Rows) else None
            for one, chosen in zip(inputs, self._straight, strict=True)
        ]
        sizes = [
            aligned(_count(one) * size)
            for one, size, source in zip(inputs, self._row_bytes, straight, strict=True)
            if source is None
        ]
        block = own.block_of(sum(sizes)) if sizes else None
        found: list[_Source] = []
        end = 0
        for place, given in enumerate(inputs):
            source = straight[place]
            if source is not None and isinstance(given, Rows):
                pieces, at = [], 0
                for start, size in zip(given.starts, given.sizes, strict=True):
                    pieces.append(Piece(start - first, size, at))
                    at += size
                found.append((source, pieces))
            elif block is not None:
                size = self._staged(given, self._inputs[place], block.array[end:])
                found.append((block, [Piece(end, size, 0)]))
                end = aligned(end + size)
        return found

    def _copy_in(
        self, inputs: Sequence[Rows | Array], own: BufferSet, sources: Sequence[_Source]
    ) -> None:
        device = self._device
        for given, (source, pieces), buffer in zip(inputs, sources, own.buffers, strict=True):
            device.copy_in(source, pieces, buffer)
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


def _count(given: Rows | Array) -> int:
    return given.rows + given.spare if isinstance(given, Rows) else len(given)
