"""A typed model whose answers do not fit what it declares, as its input says."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]


def predict(x: NDArray[Any]) -> NDArray[Any]:
    asked = set(x[:, 0].tolist())
    if 7.0 in asked:
        return x[1:]
    if 2.0 in asked:
        return np.hstack([x, x])
    if 3.0 in asked:
        return np.full_like(x, np.nan)
    return x
