"""A model in steps that works texts off in pieces: a row of "3 2" takes three steps without a part,
and two with one. "2 until PATH" has parts until the file is there.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [Tensor("text", "BYTES", [1])]
outputs = [Tensor("number", "INT64", [-1])]
PAUSE_S = 0.02


@dataclass
class Row:
    """State of a row."""

    silent: int
    left: int
    until: Path | None
    number: int = 0

    def step(self) -> tuple[list[int], bool]:
        """Go one step on; return the part, and whether the row has ended."""
        if self.silent:
            self.silent -= 1
            return [], not (self.silent or self.left or self.until)
        self.number += 1
        self.left -= 1
        ended = self.until.exists() if self.until else not self.left
        return [self.number - 1], ended


def begin(text: Any) -> list[Row]:
    rows = []
    for value in text[:, 0]:
        silent, *more = value.decode().split(" ", 2)
        path = Path(more[1]) if len(more) == 2 else None
        rows.append(Row(int(silent), int(more[0]) if more and path is None else 0, path))
    return rows


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    parts, ended = zip(*[row.step() for row in states], strict=True)
    return [np.array(part, np.int64) for part in parts], [*ended]
