"""A device that is a clock: copies and runs take the times of a GPU, made longer.

The times are those of a residual network on an H100, from 1 to 32 rows of 602 KB, by CUDA graphs:
0.88 to 2.63 ms a run and 14.7 µs a row for its copy. All are four times as long here, so that two
cores can ask for as much as the device takes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor
from ringbatch.engine.devices.batch_run import row_bytes
from ringbatch.engine.devices.port import Event, Locked, Piece
from ringbatch.engine.models.model import Model
from ringbatch.engine.runtimes import python

T = TypeVar("T")

LONGER: Final = 4
COPY_S: Final = LONGER * 14.7e-6
"""Time to copy one row, in seconds."""
FIXED_S: Final = LONGER * 0.82e-3
"""Time of a run in seconds, to which `ROW_S` is added for each row."""
ROW_S: Final = LONGER * 56.5e-6


def run_s(rows: int) -> float:
    """Return how long a run of so many rows takes."""
    return FIXED_S + ROW_S * rows


class _Queue:
    """Queue of the device: the time at which it will have done all of its work."""

    def __init__(self) -> None:
        self.until_s = 0.0

    def mark(self) -> "_Place":
        """Return the instant at which what is added now would begin."""
        return _Place(max(time.monotonic(), self.until_s))

    def add(self, took_s: float, behind_s: float = 0.0) -> None:
        self.until_s = max(time.monotonic(), self.until_s, behind_s) + took_s


class _Place(NamedTuple):
    """An event, by its time."""

    at_s: float

    def passed(self) -> bool:
        return time.monotonic() >= self.at_s

    def synchronize(self) -> None:
        time.sleep(max(self.at_s - time.monotonic(), 0.0))

    def since_ns(self, mark: Any) -> int:
        return int((self.at_s - mark.at_s) * 1e9)


class _Buffer(NamedTuple):
    """Memory for one input's rows: as bytes, and as an array."""

    data: NDArray[np.uint8]
    rows: NDArray[np.float32]


class TimedDevice:
    """See `ringbatch.engine.devices.port.Device`. What it does happens at once, and counts later.

    Args:
        run: computes the outputs of a batch.
    """

    name = "timed:0"
    no_graphs = ""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run
        self._in, self._out = _Queue(), _Queue()

    def register(self, memory: NDArray[np.uint8]) -> Locked:
        """See `Device.register`."""
        return Locked(memory, memory)

    def unregister(self) -> None:
        """See `Device.unregister`."""

    def block(self, size: int) -> Locked:
        """See `Device.block`."""
        memory = np.zeros(size, np.uint8)
        return Locked(memory, memory)

    def buffers(self, tensors: Sequence[Tensor], rows: int) -> Sequence[_Buffer]:
        """See `Device.buffers`."""
        made = [np.zeros(rows * row_bytes(tensor), np.uint8) for tensor in tensors]
        return [_Buffer(data, data.view("<f4").reshape(rows, -1)) for data in made]

    def copy_in(self, source: Locked, pieces: Sequence[Piece], buffer: _Buffer) -> None:
        """See `Device.copy_in`."""
        copied = 0
        for start, size, at in pieces:
            buffer.data[at : at + size] = source.array[start : start + size]
            copied += size
        self._in.add(COPY_S * copied / buffer.rows[:1].nbytes)

    def repeat(self, buffer: _Buffer, row: int, until: int) -> None:
        """See `Device.repeat`."""
        buffer.rows[row + 1 : until] = buffer.rows[row]

    def mark_in(self) -> _Place:
        """See `Device.mark_in`."""
        return self._in.mark()

    def mark_out(self) -> _Place:
        """See `Device.mark_out`."""
        return self._out.mark()

    def copied_in(self) -> Event:
        """See `Device.copied_in`."""
        return _Place(self._in.until_s)

    def copied_out(self) -> Event:
        """See `Device.copied_out`."""
        return _Place(self._out.until_s)

    def run(self, buffers: Sequence[_Buffer], rows: int, behind: Any) -> Any:
        """See `Device.run`."""
        self._out.add(run_s(rows), behind.at_s)
        return self._run(*[buffer.rows[:rows] for buffer in buffers])

    def capture(self, buffers: Sequence[_Buffer], rows: int) -> Any:
        """See `Device.capture`."""
        return buffers, rows

    def replay(self, graph: Any, behind: Any) -> Any:
        """See `Device.replay`."""
        buffers, rows = graph
        return self.run(buffers, rows, behind)

    def copy_out(self, outputs: Any) -> Any:
        """See `Device.copy_out`."""
        return np.array(outputs)

    def read(self, copied: Any) -> Any:
        """See `Device.read`."""
        return copied

    def drain(self) -> None:
        """See `Device.drain`."""
        for queue in (self._in, self._out):
            _Place(queue.until_s).synchronize()

    def attempt(self, run: Callable[[], T]) -> T:
        """See `Device.attempt`."""
        return run()

    def held_bytes(self) -> int:
        """See `Device.held_bytes`."""
        return 0


def install() -> None:
    """Put the model files that this process opens on this device, for a process of their own.

    The engine would look for torch and a GPU.
    """
    vars(python)["with_tensors"] = _on_timed_device


def _on_timed_device(_path: Path, model: Model, *_: Any, **_more: Any) -> Model:
    return replace(model, device=TimedDevice(model.predict))
