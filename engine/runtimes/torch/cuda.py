"""A CUDA device with a program of torch on it, as `ringbatch.engine.devices.port` describes it.

Each queue is a stream. Order between them comes from events alone; the whole device is waited for
only after a failure.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.devices.batch_run import row_bytes
from ringbatch.engine.devices.port import Locked, MemoryRefused, Piece
from ringbatch.engine.runtimes.torch.program import DATATYPES
from ringbatch.shm.tensor import Tensor

T = TypeVar("T")

_DTYPES: Final = {datatype: dtype for dtype, datatype in DATATYPES.items()}
_NS_PER_MS: Final = 1e6
_RUNS_BEFORE_CAPTURE: Final = 3
"""Runs in which libraries choose algorithms and allocate workspaces, which no capture may hold."""


class Program(Protocol):
    """A model of torch."""

    def results(self, tensors: Sequence[Any], *, cached: bool = True) -> Any:
        """Run it on tensors of the device; what it returns is still there.

        Args:
            tensors: one for each input.
            cached: whether autocast may keep weights that it has cast, until the run ends.
        """

    def to_host(self, results: Any) -> Any:
        """Begin to copy results to page-locked memory, on the current stream."""

    def to_arrays(self, copied: Any) -> Any:
        """Return such copies as `predict` returns outputs."""

    def attempt(self, run: Callable[[], T]) -> T:
        """See `Device.attempt`."""


class _Buffer(NamedTuple):
    """Memory for one input's rows: as bytes, and as a tensor."""

    data: Any
    rows: Any


class _Event:
    """See `ringbatch.engine.devices.port.Event`."""

    def __init__(self, event: Any) -> None:
        self.event = event
        self.synchronize: Callable[[], None] = event.synchronize

    def passed(self) -> bool:
        """See `Event.passed`."""
        return bool(self.event.query())

    def since_ns(self, mark: Any) -> int:
        """See `Event.since_ns`."""
        return int(mark.event.elapsed_time(self.event) * _NS_PER_MS)


class _Graph(NamedTuple):
    """A captured run, and the outputs that its replays write."""

    graph: Any
    outputs: Any


class CudaDevice:
    """See `ringbatch.engine.devices.port.Device`.

    Args:
        torch: the module.
        device: of torch, current in this thread.
        program: that is on it.
        no_graphs: why it is not captured; empty if it may be.
    """

    def __init__(self, torch: Any, device: Any, program: Program, no_graphs: str = "") -> None:
        self.name = str(device)
        self.no_graphs = no_graphs
        self._torch = torch
        self._device = device
        self._program = program
        self._in = torch.cuda.Stream(device)
        self._out = torch.cuda.Stream(device)
        self._registered = 0
        self._pool: Any = None

    def register(self, memory: NDArray[np.uint8]) -> Locked:
        """See `Device.register`."""
        cudart, address = self._torch.cuda.cudart(), memory.ctypes.data
        status = cudart.cudaHostRegister(address, memory.nbytes, 0)
        if int(status):
            self._forget_error()
            text = " ".join(cudart.cudaGetErrorString(status).split())
            raise MemoryRefused(f"{text}, error {int(status)} of cudaHostRegister")
        self._registered = address
        return Locked(memory, self._torch.from_numpy(memory))

    def _forget_error(self) -> None:
        """Take CUDA's last error off it, which torch would report for its next kernel."""
        try:
            self._torch.zeros(1, device=self._device)
        except RuntimeError:
            return

    def unregister(self) -> None:
        """See `Device.unregister`."""
        if self._registered:
            address, self._registered = self._registered, 0
            cudart = self._torch.cuda.cudart()
            status = cudart.cudaHostUnregister(address)
            if int(status):
                raise RuntimeError(f"cudaHostUnregister: {cudart.cudaGetErrorString(status)}")

    def block(self, size: int) -> Locked:
        """See `Device.block`."""
        tensor = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        return Locked(tensor.numpy(), tensor)

    def buffers(self, tensors: Sequence[Tensor], rows: int) -> Sequence[_Buffer]:
        """See `Device.buffers`."""
        with self._torch.cuda.stream(self._out):
            made = [self._buffer(tensor, rows) for tensor in tensors]
        # The way in writes into them.
        self._out.synchronize()
        return made

    def _buffer(self, tensor: Tensor, rows: int) -> _Buffer:
        torch = self._torch
        dtype = getattr(torch, _DTYPES[tensor.datatype.name])
        data = torch.zeros(rows * row_bytes(tensor), dtype=torch.uint8, device=self._device)
        assert prod(tensor.shape), "rows without bytes are run in another way"
        return _Buffer(data, data.view(dtype).view(rows, *tensor.shape))

    def copy_in(self, source: Locked, pieces: Sequence[Piece], buffer: _Buffer) -> None:
        """See `Device.copy_in`."""
        memory, data = source.handle, buffer.data
        with self._torch.cuda.stream(self._in):
            for start, size, at in pieces:
                data[at : at + size].copy_(memory[start : start + size], non_blocking=True)

    def repeat(self, buffer: _Buffer, row: int, until: int) -> None:
        """See `Device.repeat`."""
        with self._torch.cuda.stream(self._in):
            buffer.rows[row + 1 : until] = buffer.rows[row]

    def mark_in(self) -> _Event:
        """See `Device.mark_in`."""
        return self._event(self._in)

    def mark_out(self) -> _Event:
        """See `Device.mark_out`."""
        return self._event(self._out)

    def copied_in(self) -> _Event:
        """See `Device.copied_in`."""
        return self._event(self._in)

    def copied_out(self) -> _Event:
        """See `Device.copied_out`."""
        return self._event(self._out)

    def _event(self, stream: Any) -> _Event:
        event = self._torch.cuda.Event(enable_timing=True)
        stream.record_event(event)
        return _Event(event)

    def run(self, buffers: Sequence[_Buffer], rows: int, behind: Any) -> Any:
        """See `Device.run`."""
        self._out.wait_event(behind.event)
        with self._torch.cuda.stream(self._out):
            return self._program.results([buffer.rows[:rows] for buffer in buffers])

    def capture(self, buffers: Sequence[_Buffer], rows: int) -> _Graph:
        """See `Device.capture`."""
        cuda, results = self._torch.cuda, self._program.results
        inputs = [buffer.rows[:rows] for buffer in buffers]
        with cuda.stream(self._out):
            for _ in range(_RUNS_BEFORE_CAPTURE):
                results(inputs, cached=False)
        self._out.synchronize()
        if self._pool is None:
            self._pool = cuda.graph_pool_handle()
        graph = cuda.CUDAGraph()
        # A capture that fails leaves its stream the current one; the outer block does not.
        with (
            cuda.stream(self._out),
            cuda.graph(graph, pool=self._pool, stream=self._out),
        ):
            outputs = results(inputs, cached=False)
        return _Graph(graph, outputs)

    def replay(self, graph: _Graph, behind: Any) -> Any:
        """See `Device.replay`."""
        self._out.wait_event(behind.event)
        with self._torch.cuda.stream(self._out):
            graph.graph.replay()
        return graph.outputs

    def copy_out(self, outputs: Any) -> Any:
        """See `Device.copy_out`."""
        with self._torch.cuda.stream(self._out):
            return self._program.to_host(outputs)

    def read(self, copied: Any) -> Any:
        """See `Device.read`."""
        return self._program.to_arrays(copied)

    def drain(self) -> None:
        """See `Device.drain`."""
        self._torch.cuda.synchronize(self._device)

    def attempt(self, run: Callable[[], T]) -> T:
        """See `Device.attempt`."""
        return self._program.attempt(run)

    def held_bytes(self) -> int:
        """See `Device.held_bytes`."""
        return int(self._torch.cuda.memory_reserved(self._device))
