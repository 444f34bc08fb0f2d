"""A model in steps whose rows cost as much as their limit says: "5 PATH" has five numbers, and goes
on until the file is there; "5" goes on for five steps.

Each part has its number, and what all live rows of its step cost.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import InvalidInput, Tensor

inputs = [Tensor("text", "BYTES", [1])]
outputs = [
    Tensor("number", "INT64", [-1]),
    Tensor("costs", "INT64", [-1]),
    Tensor("begun", "INT64", []),
]
PAUSE_S = 0.005


@dataclass
class Row:
    """State of a row."""

    cost: int
    until: Path | None
    begun: int
    number: int = 0


def cost(text: Any) -> int:
    if text[0] == b"endless":
        raise InvalidInput("endless texts are not taken")
    return int(text[0].split()[0])


def begin(text: Any) -> list[Row]:
    rows = []
    for value in text[:, 0]:
        first, _, rest = value.decode().partition(" ")
        rows.append(Row(int(first), Path(rest) if rest else None, len(text)))
    return rows


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    number = np.array([[row.number] for row in states])
    for row in states:
        row.number += 1
    costs = np.full((len(states), 1), sum(row.cost for row in states))
    ended = [row.until.exists() if row.until else row.number == row.cost for row in states]
    return (number, costs, np.array([row.begun for row in states])), ended
