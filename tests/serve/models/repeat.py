"""Triton's example of a decoupled model: each element of IN is a part, DELAY milliseconds later.

A negative element fails: -1 raises, -2 kills the worker.
"""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [
    Tensor("IN", "INT32", [-1]),
    Tensor("DELAY", "UINT32", [-1]),
    Tensor("WAIT", "UINT32", [1]),
]
outputs = [Tensor("OUT", "INT32", [-1]), Tensor("IDX", "UINT32", [-1])]


def predict(values: Any, delays: Any, wait: Any) -> Iterator[tuple[Any, Any]]:
    for place in range(values.shape[-1]):
        time.sleep(delays.flat[place] / 1000)
        part = values[..., place : place + 1]
        if part.flat[0] == -1:
            raise ValueError("raised by the model")
        if part.flat[0] == -2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield part, np.full(part.shape, place, np.uint32)
    time.sleep(wait.flat[0] / 1000)
