"""Declares its input, and raises for some, as models do that check nothing."""

from typing import Any

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [])]
outputs = [Tensor("y", "FP32", [])]


def predict(x: Any) -> Any:
    if (x < 0).any():
        raise ValueError("negative")
    return x
