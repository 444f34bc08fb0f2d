"""CUDA's start on a device, beside the reading of the model file.

CUDA makes its context for a device with the first thing that is asked of it, which takes up to
seconds. A program is read on the CPU, so both go on at once.
"""

from collections.abc import Callable
from typing import Any

from ringbatch.shm.host.background import short_thread


class CudaStart:
    """The start of CUDA on a device, in a thread of its own.

    Args:
        torch: the module.
        device: a device of CUDA.
        clock_ns: the monotonic clock.
    """

    def __init__(self, torch: Any, device: Any, clock_ns: Callable[[], int]) -> None:
        self._torch = torch
        self._device = device
        self._clock_ns = clock_ns
        self._took_ns = 0
        self._thread = short_thread("cuda-start", self._start)

    def _start(self) -> None:
        began_ns = self._clock_ns()
        try:
            self._torch.zeros(1, device=self._device)
        except RuntimeError:
            # The model's own load meets the same error, and names the model.
            return
        self._took_ns = self._clock_ns() - began_ns

    def wait_ns(self) -> int:
        """Wait until CUDA has started; return how long it took, 0 if it could not."""
        if self._thread is not None:
            self._thread.join()
        return self._took_ns
