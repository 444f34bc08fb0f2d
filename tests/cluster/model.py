"""Adds up 16 numbers; says in a file of its own folder each time that it is loaded."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [16])]
outputs = [Tensor("y", "FP32", [2])]
LOADS = Path(os.environ.get("RINGBATCH_TEST_LOADS", os.devnull))


def load() -> None:
    with LOADS.open("a") as loads:
        loads.write(f"{os.getpid()}\n")


def predict(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([x.sum(axis=1), x.max(axis=1)], axis=1)
