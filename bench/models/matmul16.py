"""Sixteen floats in, ten out: one matrix product, so that a run measures the server around it."""

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [16])]
outputs = [Tensor("y", "FP32", [10])]

# RandomState's stream is frozen by numpy, so every peer's environment gets the same weights.
W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map [batch, 16] to [batch, 10]."""
    return x @ W
