"""A model in steps that keeps its rows in arrays, by the numbers of their places.

Texts: "5"; "until PATH"; "refuse" cannot begin. Each part has its number, the row's, and how many
places there are.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import Tensor

inputs = [Tensor("text", "BYTES", [1])]
outputs = [
    Tensor("number", "INT64", [-1]),
    Tensor("row", "INT64", []),
    Tensor("places", "INT64", []),
]
PAUSE_S = 0.005
made: Any = None
count: Any = None
until: Any = None


def load(places: int) -> None:
    global made, count, until
    made, count = np.zeros(places, np.int64), np.zeros(places, np.int64)
    until = np.empty(places, object)


def begin(text: Any, rows: Any) -> None:
    for row, value in zip(rows, text[:, 0], strict=True):
        first, _, rest = value.decode().partition(" ")
        if first == "refuse":
            raise ValueError("refused")
        until[row] = Path(rest) if first == "until" else None
        count[row] = 0 if rest else int(first or 1)
    made[rows] = 0


def step(rows: Any) -> tuple[Any, Any]:
    time.sleep(PAUSE_S)
    number = made[rows][:, np.newaxis]
    made[rows] += 1
    ended = made[rows] == count[rows]
    for place, row in enumerate(rows):
        ended[place] = until[row].exists() if until[row] else ended[place]
    return (number, rows, np.full(len(rows), len(made))), ended


def end(row: int, reason: str) -> None:
    made[row] = -1000
