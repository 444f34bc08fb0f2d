"""A torch whose CUDA is the CPU: streams, events and graphs as torch has them, without a device.

Operations happen at once, in the order of the calls. A graph records the operations of its capture,
and a replay runs them again into the same memory, as a real one does.
"""

import logging
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ringbatch.engine.devices.batch_run import SETS, BatchRun, Rows
from ringbatch.engine.models.model import Model
from ringbatch.engine.runtimes import device_tensors
from ringbatch.engine.runtimes.torch.cuda import CudaDevice


class Stream:
    """CUDA stream that counts the operations ordered by it."""

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda = cuda
        self.behind: list[Any] = []

    def synchronize(self) -> None:
        self.cuda.calls.append("stream.synchronize")

    def wait_event(self, event: Any) -> None:
        self.behind.append(event)

    def record_event(self, event: Any) -> None:
        event.stream, event.passes_s = self, time.monotonic() + self.cuda.lag_s


class CudaEvent:
    """CUDA event that passes some time after it was recorded, as if the operations took so long."""

    stream: Any = None
    passes_s = 0.0

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.timed = enable_timing

    def elapsed_time(self, end: "CudaEvent") -> float:
        assert self.timed, "it has a time"
        assert end.timed, "it has a time"
        assert end.stream is self.stream, "the two are of one stream"
        assert self.query(), "it has passed"
        assert end.query(), "it has passed"
        return (end.passes_s - self.passes_s) * 1000

    def query(self) -> bool:
        assert self.stream is not None, "it was recorded"
        return time.monotonic() >= self.passes_s

    def synchronize(self) -> None:
        assert self.stream is not None, "it was recorded"
        time.sleep(max(self.passes_s - time.monotonic(), 0))


class _Recording(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        self.made.append((function, args, kwargs or {}, found))
        return found


class CudaGraph:
    """CUDA graph that replays its recorded operations on the CPU."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, Any, Any, Any]] = []

    def replay(self) -> None:
        with torch.inference_mode():
            for function, args, kwargs, before in self.made:
                after = function(*args, **kwargs)
                pairs = [(before, after)]
                if isinstance(before, (list, tuple)):
                    pairs = list(zip(before, after, strict=True))
                for old, new in pairs:
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Cuda:
    """Namespace `torch.cuda`.

    Attributes:
        calls: calls that matter to the tests.
        refuses: error of cudaHostRegister.
        breaks_capture: error of a capture.
        lag_s: from the record of an event until it passes.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refuses = ""
        self.breaks_capture = ""
        self.lag_s = 0.0
        self.current: Any = None
        self.Stream = lambda _device: Stream(self)
        self.Event = CudaEvent
        self.CUDAGraph = CudaGraph

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: CudaGraph, pool: Any, stream: Stream) -> Iterator[None]:
        assert pool == "pool"
        # As torch does, it leaves its stream the current one if it fails.
        before, self.current = self.current, stream
        if self.breaks_capture:
            raise RuntimeError(self.breaks_capture)
        with _Recording() as recording:
            yield
        graph.made, self.current = recording.made, before

    def set_device(self, _device: Any) -> None:
        self.calls.append("set_device")

    def graph_pool_handle(self) -> str:
        self.calls.append("pool")
        return "pool"

    def cudart(self) -> Any:
        return SimpleNamespace(
            cudaHostRegister=lambda address, size, flags: self._registered(address, size, flags),
            cudaHostUnregister=lambda address: self._unregistered(address),
            cudaGetErrorString=lambda status: self.refuses if status else "no error",
        )

    def _registered(self, address: int, size: int, flags: int) -> int:
        self.calls.append(f"register {address} {size} {flags}")
        return int(bool(self.refuses))

    def _unregistered(self, address: int) -> int:
        self.calls.append(f"unregister {address}")
        logging.getLogger("cuda").info("cudaHostUnregister")
        return int(bool(self.refuses))

    def synchronize(self, _device: Any = None) -> None:
        self.calls.append("synchronize")

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")

    def memory_reserved(self, _device: Any) -> int:
        return 5 << 20


class _Device(NamedTuple):
    """Device of torch, by its name."""

    name: str
    type: str = "cuda"

    def __str__(self) -> str:
        return self.name


class CudaOnCpu:
    """Module `torch`, with that namespace; memory is page-locked as soon as that is asked for."""

    def __init__(self) -> None:
        self.cuda = Cuda()

    def device(self, name: str) -> Any:
        return _Device(name)

    def zeros(self, *sizes: Any, device: Any = None, **more: Any) -> Any:
        self.cuda.calls.append("zeros")
        return torch.zeros(*sizes, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *sizes: Any, pin_memory: bool = False, **more: Any) -> Any:
        assert pin_memory
        return torch.empty(*sizes, **more)


class Site:
    """A program on such a device, and memory that requests stand in."""

    def __init__(self, model: Model) -> None:
        self.torch = CudaOnCpu()
        self.calls = self.torch.cuda.calls
        self.device: Any = model.device
        if self.device is None:
            predict: Any = model.predict
            predict._torch, predict._on_gpu = self.torch, True
            self.device = CudaDevice(self.torch, torch.device("cpu"), predict)
        self.memory = memoryview(mmap.mmap(-1, 2 * mmap.PAGESIZE))
        self.run = BatchRun(self.device, model.inputs, self.memory, mmap.PAGESIZE)
        self.outputs = [tensor.name for tensor in model.outputs]

    def straight(self) -> None:
        self.run.register()
        self.run._straight = [True] * len(self.run._inputs)

    def capture(self, *sizes: int) -> None:
        """Capture graphs of these sizes, the first of which is the largest."""
        for _ in range(SETS):
            made = (np.zeros((sizes[0], *one.shape), "f4") for one in self.run._inputs)
            self.run.predict(*made)
        for rows in sizes:
            self.run.capture(rows)

    def rows(self, array: Any, spare: int = 0) -> Rows:
        """Rows of an input in requests' memory, the last one first."""
        size = array[:1].nbytes
        starts = [mmap.PAGESIZE + 64 * number for number in range(len(array))][::-1]
        for start, row in zip(starts, array, strict=True):
            self.memory[start : start + size] = row.tobytes()
        return Rows(starts, [size] * len(array), len(array), spare)


def _begin(run: BatchRun, plain: Any, awaited: list[int], *inputs: Any) -> Any:
    begun = plain(run, *inputs)
    if len(run.under_way) in awaited:
        awaited.clear()
        logging.getLogger("cuda").info("%d batches are under way", len(run.under_way))
    return begun


def install(lag_s: float = 0.0) -> None:
    """Replace the device of Python model files in this process by `CudaOnCpu`.

    The log says so once two batches are under way.

    Args:
        lag_s: see `Cuda`.
    """
    fake = CudaOnCpu()
    fake.cuda.lag_s = lag_s
    stand_ins: list[tuple[Any, str, Any]] = [
        (device_tensors, "required", lambda *_: fake),
        (device_tensors, "check_device", lambda *_: None),
        (BatchRun, "begin", partialmethod(_begin, BatchRun.begin, [SETS])),
    ]
    for owner, name, stand_in in stand_ins:
        setattr(owner, name, stand_in)
