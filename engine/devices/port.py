"""The port between a worker and a device that holds its model.

A device works in two queues. The way in has the copies of inputs, the way out has runs and the
copies of outputs. An operation that begins something returns before it has happened. Each queue
keeps its order, and nothing but an event orders one behind the other. Whatever a queue reads must
stay as it is until an event behind it has passed.

`ringbatch.engine.runtimes.torch.cuda` is the real one. The tests have one that is played, which
completes late and in every order that the real one may.

numpy is not imported here. The supervisor and the fork server import this module, and numpy must
find a worker's own number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from ringbatch.shm.tensor import Tensor

T = TypeVar("T")


class MemoryRefused(Exception):
    """Raised if the device does not take memory of this process; the text says why."""


@dataclass(frozen=True, slots=True)
class Locked:
    """Host memory that the device reads by itself.

    Attributes:
        array: its bytes, an array of uint8.
        handle: the same as the device knows it.
    """

    array: Any
    handle: Any


class Piece(NamedTuple):
    """Copy of `size` bytes: from `start` of the source to byte `at` of a buffer."""

    start: int
    size: int
    at: int


class Mark(Protocol):
    """An instant in a queue: all in front of it has happened then. Nothing is ordered by it."""


class Event(Protocol):
    """A place in a queue."""

    def passed(self) -> bool:
        """Return whether all in front of it has happened; this never waits."""

    def synchronize(self) -> None:
        """Wait until all in front of it has happened."""

    def since_ns(self, mark: Mark) -> int:
        """Return the time from a mark of the same queue to this event, which has passed."""


class Device(Protocol):
    """A device with a model on it, for one thread of a worker.

    Attributes:
        name: for messages, such as ``cuda:0``.
        no_graphs: why runs of this model are not captured; empty if they may be.
    """

    name: str
    no_graphs: str

    def register(self, memory: Any) -> Locked:
        """Have the device read memory of this process by itself, until `unregister`.

        Args:
            memory: an array of uint8.

        Raises:
            MemoryRefused: it does not.
        """

    def unregister(self) -> None:
        """Let go of the registered memory, if any; to be called before its mapping goes."""

    def block(self, size: int) -> Locked:
        """Return page-locked memory of so many bytes."""

    def buffers(self, tensors: Sequence[Tensor], rows: int) -> Sequence[Any]:
        """Return memory of the device for so many rows of each tensor; its bytes are zeros."""

    def mark_in(self) -> Mark:
        """Return a mark behind all that has begun on the way in."""

    def copy_in(self, source: Locked, pieces: Sequence[Piece], buffer: Any) -> None:
        """Begin copies on the way in."""

    def repeat(self, buffer: Any, row: int, until: int) -> None:
        """Begin to write a row of a buffer into those behind it, up to `until`, on the way in."""

    def copied_in(self) -> Event:
        """Return an event behind all that has begun on the way in."""

    def run(self, buffers: Sequence[Any], rows: int, behind: Event) -> Any:
        """Begin a run on the first rows of the buffers, on the way out, behind an event."""

    def capture(self, buffers: Sequence[Any], rows: int) -> Any:
        """Return a graph of such a run, for `replay`; it has happened by then.

        The graph reads the same buffers, and its outputs have one place for all replays. Graphs
        share memory, so that a run of one may write where another has its outputs.
        """

    def replay(self, graph: Any, behind: Event) -> Any:
        """Begin a run of a graph as `run` does; the outputs hold until the next one."""

    def mark_out(self) -> Mark:
        """Return a mark behind all that has begun on the way out."""

    def copy_out(self, outputs: Any) -> Any:
        """Begin to copy the outputs of a run to page-locked memory, on the way out."""

    def copied_out(self) -> Event:
        """Return an event behind all that has begun on the way out."""

    def read(self, copied: Any) -> Any:
        """Return what `copy_out` has copied as arrays, as `predict` of a model returns outputs."""

    def drain(self) -> None:
        """Wait until all that has begun has happened."""

    def attempt(self, run: Callable[[], T]) -> T:
        """Call a function that uses the device, and return what it returns.

        Raises:
            MemoryError: the device has too little memory.
            RestartWorker: the device has failed for good.
        """

    def held_bytes(self) -> int:
        """Return the bytes of the device's memory that this process has taken."""
