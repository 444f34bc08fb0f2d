"""A model in steps: a row has as many parts as its text says, or goes on until a file is there.

Texts: "5"; "until PATH"; "3 raise" and "3 exit" fail behind three parts; "refuse" cannot begin.
Each part has its number, and how many rows were live in its step.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import Tensor, metrics

inputs = [Tensor("text", "BYTES", [1])]
outputs = [
    Tensor("number", "INT64", [-1]),
    Tensor("live", "INT64", [-1]),
    Tensor("by", "BYTES", []),
]
MADE_BY = b"old"
PAUSE_S = 0.005

ended_rows = metrics.counter("stepping_ended_total", "rows that have ended", ["reason"])


class Row:
    """State of a row."""

    def __init__(self, text: str) -> None:
        if text == "refuse":
            raise ValueError("refused")
        first, _, rest = text.partition(" ")
        self.until = Path(rest) if first == "until" else None
        self.count = 0 if self.until else int(first or 1)
        self.fault = "" if self.until else rest
        self.number = 0

    def step(self) -> bool:
        """Go one step on; return whether the row has ended."""
        if self.number == self.count and self.fault == "raise":
            raise ValueError("raised behind a part")
        if self.number == self.count and self.fault == "exit":
            os.kill(os.getpid(), signal.SIGKILL)
        self.number += 1
        if self.until is not None:
            return self.until.exists()
        return self.number == self.count and not self.fault


def begin(text: Any) -> list[Row]:
    return [Row(value.decode()) for value in text[:, 0]]


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    ended = [row.step() for row in states]
    number = np.array([[row.number - 1] for row in states])
    live = np.full((len(states), 1), len(states))
    return (number, live, np.array([MADE_BY] * len(states), object)), ended


def end(state: Row, reason: str) -> None:
    assert isinstance(state, Row)
    ended_rows.labels(reason).inc()
