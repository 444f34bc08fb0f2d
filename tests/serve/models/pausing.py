"""A model in steps whose rows pause: behind so many parts, each of its steps waits for a file.

A text is "N" or "N PATH M": a row with a path pauses behind N parts until the file is there, and
ends behind M.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import Tensor, metrics

inputs = [Tensor("text", "BYTES", [1])]
outputs = [Tensor("number", "INT64", [-1])]
TICK_S = 0.002

begun_rows = metrics.counter("pausing_begun_total", "rows that have begun", ["text"])
ended_rows = metrics.counter("stepping_ended_total", "rows that have ended", ["reason"])


class Row:
    """State of a row."""

    def __init__(self, text: str) -> None:
        count, *rest = text.split(" ")
        begun_rows.labels(count).inc()
        self.count = int(count)
        self.path = Path(rest[0]) if rest else None
        self.most = int(rest[1]) if rest else self.count
        self.number = 0

    def step(self) -> bool:
        """Go one step on; return whether the row has ended."""
        while self.path is not None and self.number == self.count and not self.path.exists():
            time.sleep(TICK_S)
        self.number += 1
        return self.number == self.most


def begin(text: Any) -> list[Row]:
    return [Row(value.decode()) for value in text[:, 0]]


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    ended = [row.step() for row in states]
    return np.array([[row.number - 1] for row in states]), ended


def end(state: Row, reason: str) -> None:
    assert isinstance(state, Row)
    ended_rows.labels(reason).inc()
