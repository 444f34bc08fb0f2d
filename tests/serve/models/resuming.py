"""Model in steps that can go on: a row counts, and is given its earlier count.

Texts: "5"; "until PATH"; "3 raise" and "3 exit" fail whenever three parts are out.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [Tensor("text", "BYTES", [1]), Tensor("counted", "INT64", [-1], default=[])]
outputs = [Tensor("number", "INT64", [-1]), Tensor("pid", "INT64", [])]
resumable = {"number": "counted"}
PAUSE_S = 0.005


class Row:
    """State of a row."""

    def __init__(self, text: str, counted: list[int]) -> None:
        assert counted == [*range(len(counted))]
        first, _, rest = text.partition(" ")
        self.until = Path(rest) if first == "until" else None
        self.count = 0 if self.until else int(first)
        self.fault = "" if self.until else rest
        self.number = len(counted)

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


def begin(text: Any, counted: Any) -> list[Row]:
    return [Row(one.decode(), done.tolist()) for one, done in zip(text[:, 0], counted, strict=True)]


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    ended = [row.step() for row in states]
    number = np.array([[row.number - 1] for row in states])
    return (number, np.full(len(states), os.getpid())), ended
