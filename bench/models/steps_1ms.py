"""A decoder that counts to the number that it gets, 1 ms a step, whatever rows are live."""

import time
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [Tensor("n", "INT64", [])]
outputs = [Tensor("number", "INT64", [])]


def begin(n: Any) -> list[Any]:
    """Return a state for each row: the number to count to, and the next number."""
    return [[int(one), 0] for one in n]


def step(states: list[Any]) -> Any:
    """Return the next number of each row, and which rows have ended."""
    time.sleep(0.001)
    numbers = np.array([state[1] for state in states])
    for state in states:
        state[1] += 1
    return numbers, [state[1] >= state[0] for state in states]
