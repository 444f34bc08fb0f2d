"""A device that is played: what it begins happens late, and in any order that a real one may keep.

It has the two queues of `ringbatch.engine.devices.port`. Whenever it is called or waited for, a
`Play` says which queues go on, and how far. Memory that nothing has been written to yet holds
SCRAP, so whoever reads too early finds that.

Each queue has a clock: copies take the same time in every play. Another queue or a play takes none.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.devices.batch_run import row_bytes, stored_dtype
from ringbatch.engine.devices.port import Event, Locked, MemoryRefused, Piece
from ringbatch.shm.brain_floats import widened
from ringbatch.shm.tensor import Tensor

T = TypeVar("T")
Bytes = NDArray[np.uint8]

SCRAP = 0xA5
IN_NS = 1
"""Time of the device for each byte that it copies on the way in."""
OUT_NS = 1_000
"""Time of the device for each byte that it copies on the way out."""
RUN_NS = 10**9
"""Time of the device for each run."""


class Play:
    """Choices in one play: the given ones, and then always the first.

    Attributes:
        made: the number of each choice, and of how many.
    """

    def __init__(self, given: Sequence[int] = ()) -> None:
        self.given = given
        self.made: list[tuple[int, int]] = []

    def __call__(self, options: int) -> int:
        number = len(self.made)
        chosen = self.given[number] if number < len(self.given) else 0
        self.made.append((chosen, options))
        return chosen


def every_play() -> Iterator[Play]:
    """Yield a play for every order there is; each is to be played before the next is asked for."""
    given: list[int] | None = []
    while given is not None:
        play = Play(given)
        yield play
        given = _following(play.made)


def _following(made: list[tuple[int, int]]) -> list[int] | None:
    while made:
        chosen, options = made.pop()
        if chosen + 1 < options:
            return [*[one for one, _ in made], chosen + 1]
    return None


class _Op(NamedTuple):
    """Operation that the device has yet to run; a mark runs with the operation in front of it."""

    happen: Callable[[], object]
    behind: "_Place | None" = None
    is_mark: bool = False


class _Place:
    """CUDA event or mark on the simulated device."""

    def __init__(self, device: "PlayedDevice", queue: int) -> None:
        self.device = device
        self.queue = queue
        self.happened = False
        self.at_ns = -1

    def happen(self) -> None:
        self.happened = True
        self.at_ns = self.device.clocks_ns[self.queue]

    def since_ns(self, mark: Any) -> int:
        assert self.happened, "its time is known once it has passed"
        assert mark.happened, "a mark in front of it has passed before"
        assert mark.queue == self.queue, "it is a mark of the same queue"
        return self.at_ns - int(mark.at_ns)

    def passed(self) -> bool:
        self.device.moment()
        return self.happened

    def synchronize(self) -> None:
        self.device.go_on_until(lambda: self.happened)


class _Buffer(NamedTuple):
    tensor: Tensor
    data: Bytes


class _Outputs:
    """Outputs of a run; scrap until it has happened."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] | None = None


class PlayedDevice:
    """Simulated device; see `ringbatch.engine.devices.port.Device`.

    Args:
        model: takes an array for each input, and returns a list of them.
        play: choice of the queue that goes on.
        on_run: is called with the rows as a run begins, and may raise, as a model does.
        reads: is told the address of registered memory that a copy will read; what it returns is
            called as the copy reads it.
    """

    def __init__(
        self,
        model: Callable[..., list[NDArray[Any]]],
        play: Callable[[int], int] = lambda _: 0,
        on_run: Callable[[int], object] = lambda _: None,
        reads: Callable[[int, int], Callable[[], object]] = lambda _start, _size: lambda: None,
    ) -> None:
        self.name = "played:0"
        self.no_graphs = ""
        self.refuses = ""
        self.model = model
        self.play = play
        self.on_run = on_run
        self.reads = reads
        self.ran: list[str] = []
        self.copies: list[str] = []
        self.fault: Exception | None = None
        self.in_memory: Bytes | None = None
        self.clocks_ns = [0, 0]
        self._queues: tuple[deque[_Op], deque[_Op]] = (deque(), deque())
        self._static: list[_Outputs] = []
        """Outputs of all graphs, which share memory."""

    def _runnable(self) -> list[deque[_Op]]:
        heads = [queue for queue in self._queues if queue]
        return [queue for queue in heads if queue[0].behind is None or queue[0].behind.happened]

    def moment(self) -> None:
        """Let the queues go on, as far as the play has it."""
        while runnable := self._runnable():
            chosen = self.play(1 + len(runnable))
            if not chosen:
                return
            self._happen(runnable[chosen - 1])

    def go_on_until(self, passed: Callable[[], bool]) -> None:
        while not passed():
            runnable = self._runnable()
            assert runnable, "it waits for what never happens"
            self._happen(runnable[self.play(len(runnable))])
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

    def _happen(self, queue: deque[_Op]) -> None:
        queue.popleft().happen()
        while queue and queue[0].is_mark:
            queue.popleft().happen()

    def _take(self, queue: int, took_ns: int, behind: Any = None) -> None:
        """Let a queue's clock go on, first until an event that it has waited for."""
        now_ns = max(self.clocks_ns[queue], 0 if behind is None else behind.at_ns)
        self.clocks_ns[queue] = now_ns + took_ns

    def _begin(self, queue: int, happen: Callable[[], object], behind: Any = None) -> None:
        self._queues[queue].append(_Op(happen, behind))
        self.moment()

    def _mark(self, queue: int) -> _Place:
        mark = _Place(self, queue)
        if self._queues[queue]:
            self._queues[queue].append(_Op(mark.happen, is_mark=True))
        else:
            mark.happen()
        return mark

    def mark_in(self) -> _Place:
        return self._mark(0)

    def mark_out(self) -> _Place:
        return self._mark(1)

    def register(self, memory: Bytes) -> Locked:
        if self.refuses:
            raise MemoryRefused(self.refuses)
        self.in_memory = memory
        return Locked(memory, "requests")

    def unregister(self) -> None:
        assert not any(self._queues), "what it has begun may read the memory"
        self.in_memory = None

    def block(self, size: int) -> Locked:
        return Locked(np.full(size, SCRAP, np.uint8), "block")

    def buffers(self, tensors: Sequence[Tensor], rows: int) -> Sequence[_Buffer]:
        return [_Buffer(tensor, np.zeros(rows * row_bytes(tensor), np.uint8)) for tensor in tensors]

    def copy_in(self, source: Locked, pieces: Sequence[Piece], buffer: _Buffer) -> None:
        self.copies.append(f"{len(pieces)} of {source.handle}")
        for start, size, at in pieces:
            read = self.reads(start, size) if source.handle == "requests" else None

            def happen(
                start: int = start, size: int = size, at: int = at, read: Any = read
            ) -> None:
                if read is not None:
                    assert self.in_memory is not None, "the memory is registered"
                    read()
                buffer.data[at : at + size] = source.array[start : start + size]
                self._take(0, size * IN_NS)

            self._begin(0, happen)

    def repeat(self, buffer: _Buffer, row: int, until: int) -> None:
        size = row_bytes(buffer.tensor)

        def happen() -> None:
            rows = buffer.data.reshape(-1, size)
            rows[row + 1 : until] = rows[row]
            self._take(0, (until - row - 1) * size * IN_NS)

        self._begin(0, happen)

    def copied_in(self) -> Event:
        return self._event(0)

    def copied_out(self) -> Event:
        return self._event(1)

    def _event(self, queue: int) -> Event:
        place = _Place(self, queue)
        self._begin(queue, place.happen)
        return place

    def run(self, buffers: Sequence[_Buffer], rows: int, behind: Event) -> _Outputs:
        self.on_run(rows)
        self.ran.append(f"run of {rows}")
        outputs = _Outputs()

        def happen() -> None:
            self._take(1, RUN_NS, behind)
            self._compute(buffers, rows, outputs)

        self._begin(1, happen, behind)
        return outputs

    def _compute(self, buffers: Sequence[_Buffer], rows: int, outputs: _Outputs) -> None:
        inputs = [_rows(buffer, rows) for buffer in buffers]
        try:
            arrays = [np.array(array) for array in self.model(*inputs)]
        except Exception as error:
            self.fault = self.fault or error
            return
        if outputs.arrays is None:
            outputs.arrays = arrays
        else:
            for static, array in zip(outputs.arrays, arrays, strict=True):
                static[...] = array

    def capture(self, buffers: Sequence[_Buffer], rows: int) -> Any:
        self.drain()
        self.on_run(rows)
        outputs = _Outputs()
        self._compute(buffers, rows, outputs)
        self.go_on_until(lambda: True)
        assert outputs.arrays is not None, "the model has returned"
        self._static.append(outputs)
        return buffers, rows, outputs

    def replay(self, graph: Any, behind: Event) -> _Outputs:
        buffers, rows, outputs = graph
        self.ran.append(f"replay of {rows}")

        def scribble() -> None:
            self._take(1, RUN_NS, behind)
            for own in self._static:
                for static in own.arrays or ():
                    static.view(np.uint8)[...] = SCRAP

        self._begin(1, scribble, behind)
        self._begin(1, lambda: self._compute(buffers, rows, outputs))
        return outputs  # type: ignore[no-any-return]

    def copy_out(self, outputs: _Outputs) -> list[NDArray[Any]]:
        host: list[NDArray[Any]] = []

        def happen() -> None:
            host.extend(np.array(array) for array in outputs.arrays or ())
            self._take(1, sum(array.nbytes for array in host) * OUT_NS)

        self._begin(1, happen)
        return host

    def read(self, copied: list[NDArray[Any]]) -> Any:
        assert copied, "the outputs have been copied"
        return copied[0] if len(copied) == 1 else copied

    def drain(self) -> None:
        self.go_on_until(lambda: not any(self._queues))

    def attempt(self, run: Callable[[], T]) -> T:
        return run()

    def held_bytes(self) -> int:
        return 3 << 20


class PlayedByEvents(PlayedDevice):
    """Simulated device with fewer orders: none differ by what the host does between two events.

    Its queues go on as an event is recorded, asked or waited for. An event passes with the
    operation in front of it.
    """

    def _begin(self, queue: int, happen: Callable[[], object], behind: Any = None) -> None:
        self._queues[queue].append(_Op(happen, behind))

    def _event(self, queue: int) -> Event:
        place = _Place(self, queue)
        if self._queues[queue]:
            operation = self._queues[queue].pop()

            def happen() -> None:
                operation.happen()
                place.happen()

            self._queues[queue].append(_Op(happen, operation.behind))
        else:
            place.happen()
        self.moment()
        return place


def _rows(buffer: _Buffer, rows: int) -> NDArray[Any]:
    tensor = buffer.tensor
    stored = buffer.data[: rows * row_bytes(tensor)].view(stored_dtype(tensor))
    array = widened(stored) if tensor.datatype.name == "BF16" else stored
    return array.reshape(rows, *tensor.shape).copy()
