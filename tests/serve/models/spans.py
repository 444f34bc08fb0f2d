"""The numbers from 0 up to each of some numbers, and as words: rows of unequal length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("count", "INT64", [])]
outputs = [
    Tensor("numbers", "INT32", [-1], padding=-1),
    Tensor("words", "BYTES", [-1, 2], padding="-"),
    Tensor("bare", "FP32", [-1]),
]


def predict(count: NDArray[Any]) -> dict[str, Any]:
    return {
        "numbers": [list(range(n)) for n in count],
        "words": [[[str(i), "x" * i] for i in range(n)] for n in count],
        "bare": [np.arange(min(n, 2), dtype="<f4") for n in count],
    }
