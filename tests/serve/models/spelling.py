"""A text generator that goes on with the alphabet: what comes next depends on the last token alone.

It says nothing of going on elsewhere: any text generator can.
"""

import time
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ringbatch.engine import Tensor

inputs = [Tensor("input_ids", "INT64", [-1]), Tensor("max_tokens", "INT32", [])]
outputs = [Tensor("token", "INT64", [-1])]
PAUSE_S = 0.005

tokenizer = Tokenizer.from_file(str(Path(__file__).with_name("tokenizer.json")))
LETTERS: list[int] = [tokenizer.token_to_id(letter) or 0 for letter in ascii_lowercase]
NEXT = dict(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True))


class Row:
    """State of a row."""

    def __init__(self, last: int, left: int) -> None:
        self.last = last
        self.left = left


def begin(ids: Any, most: Any) -> list[Row]:
    return [Row(int(row[-1]), int(left)) for row, left in zip(ids, most, strict=True)]


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    for row in states:
        row.last = NEXT.get(row.last, LETTERS[0])
        row.left -= 1
    return np.array([[row.last] for row in states]), [row.left <= 0 for row in states]
