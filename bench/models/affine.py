"""5 ms a batch and 0.2 ms a row, asleep: what the best possible server reaches can be computed."""

import time

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map [batch, 1] to twice that."""
    time.sleep(0.005 + 0.0002 * len(x))
    return 2 * x
