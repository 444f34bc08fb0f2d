"""A model that takes half a second a batch, whatever the batch holds, and answers twice its input.

The answer depends on the input so that an answer given to the wrong request is seen.
"""

import time

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map [batch, 1] to [batch, 1]."""
    time.sleep(0.5)
    return x * 2
