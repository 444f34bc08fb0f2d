"""A model in steps whose rows go on for ever, with 8 KiB in each part."""

import time
from typing import Any

import numpy as np

from ringbatch.engine import Tensor, metrics

inputs = [Tensor("text", "BYTES", [1])]
outputs = [Tensor("filling", "BYTES", [-1])]
PAUSE_S = 0.03
PART = [b"x" * 8192]

ended_rows = metrics.counter("stepping_ended_total", "rows that have ended", ["reason"])


def begin(text: Any) -> list[bytes]:
    return [value for (value,) in text.tolist()]


def step(states: list[bytes]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    return np.array([PART] * len(states), object), [False] * len(states)


def end(state: bytes, reason: str) -> None:
    assert isinstance(state, bytes)
    ended_rows.labels(reason).inc()
