"""CUDA starts beside the reading of a model file."""

import threading
from typing import Any

from ringbatch.engine.runtimes.torch.cuda_start import CudaStart


class _Torch:
    """A torch whose device starts when it is let go on."""

    def __init__(self, fails: bool = False) -> None:
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.fails = fails
        self.started_on: Any = None

    def zeros(self, count: int, device: Any) -> None:
        assert count == 1
        self.asked.set()
        assert self.goes_on.wait(60), "nobody lets it go on"
        if self.fails:
            raise RuntimeError("CUDA error: out of memory")
        self.started_on = device


def test_a_model_is_read_while_the_device_starts() -> None:
    torch, times_ns = _Torch(), iter([100, 350])
    start = CudaStart(torch, "cuda:1", lambda: next(times_ns))
    assert torch.asked.wait(60), "it has begun, and the caller goes on"
    assert torch.started_on is None
    torch.goes_on.set()
    assert start.wait_ns() == 250
    assert torch.started_on == "cuda:1"


def test_a_device_that_cannot_start_is_left_to_its_user() -> None:
    torch = _Torch(fails=True)
    start = CudaStart(torch, "cuda:0", lambda: 0)
    torch.goes_on.set()
    assert start.wait_ns() == 0
