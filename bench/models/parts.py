"""BENCH_PARTS parts an answer (20), BENCH_STEP_MS each (2), whatever the batch's size."""

import os
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [])]
outputs = [Tensor("y", "FP32", [-1])]
STEP_S = float(os.environ.get("BENCH_STEP_MS", "2")) / 1e3
PARTS = int(os.environ.get("BENCH_PARTS", "20"))


def predict(x: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield [batch, 1] for each part: the next number of each row."""
    for step in range(PARTS):
        time.sleep(STEP_S)
        yield (x + step)[:, None]
