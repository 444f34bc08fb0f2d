"""A decoder of parts of any size, 1 ms a step, whatever rows are live."""

import time
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [Tensor("n", "INT64", []), Tensor("size", "INT64", [], default=8)]
outputs = [Tensor("text", "BYTES", [])]


def begin(n: Any, size: Any) -> list[Any]:
    """Return a state for each row: the parts that are left, and the text of each."""
    return [[int(count), b"x" * int(length)] for count, length in zip(n, size, strict=True)]


def step(states: list[Any]) -> Any:
    """Return the text of each row, and which rows have ended."""
    time.sleep(0.001)
    for state in states:
        state[0] -= 1
    texts = np.array([state[1] for state in states], object)
    return texts, [state[0] <= 0 for state in states]
