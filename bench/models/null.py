"""Model that returns its input, one float.

It does no work, so that a run measures the server alone.
"""

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map [batch, 1] to itself."""
    return x
