"""Ten sums of sixteen numbers, with weights that make small whole numbers exact."""

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [16])]
outputs = [Tensor("y", "FP32", [10])]

weights = np.arange(160, dtype=np.float32).reshape(16, 10) % 7


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x @ weights
