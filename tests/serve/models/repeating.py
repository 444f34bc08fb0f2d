"""A text generator that repeats its prompt: behind a full stop comes the end, or else it goes on.

A prompt that begins with "!" fails once it and the answer have six tokens, also where the answer
goes on elsewhere. `seed` says where in the prompt it begins.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ringbatch.engine import Tensor, metrics

inputs = [
    Tensor("input_ids", "INT64", [-1]),
    Tensor("max_tokens", "INT64", []),
    Tensor("seed", "INT64", [], default=0),
    Tensor("temperature", "FP32", [], default=1.0),
]
outputs = [Tensor("token", "INT64", [-1])]
PAUSE_S = 0.005
FAILS_BEHIND = 6

ended_rows = metrics.counter("repeating_ended_total", "rows that have ended", ["reason"])

tokenizer = Tokenizer.from_file(str(Path(__file__).with_name("tokenizer.json")))
END, FULL_STOP, FAULT = (tokenizer.token_to_id(text) for text in ("<|end|>", ".", "!"))


class Row:
    """State of a row."""

    def __init__(self, prompt: list[int], most: int, seed: int) -> None:
        self.prompt = prompt
        self.most = most
        self.at = seed
        self.count = 0
        self.last = -1

    def step(self) -> bool:
        """Go one step on; return whether the row has ended."""
        if self.prompt[0] == FAULT and len(self.prompt) + self.count >= FAILS_BEHIND:
            raise ValueError("raised behind a part")
        if self.last == FULL_STOP:
            self.last = END or 0
            return True
        self.last = self.prompt[self.at % len(self.prompt)]
        self.at += 1
        self.count += 1
        return self.count == self.most


def begin(ids: Any, most: Any, seed: Any, temperature: Any) -> list[Row]:
    return [Row(row.tolist(), int(m), int(s)) for row, m, s in zip(ids, most, seed, strict=True)]


def step(states: list[Row]) -> tuple[Any, list[bool]]:
    time.sleep(PAUSE_S)
    ended = [row.step() for row in states]
    return np.array([[row.last] for row in states]), ended


def end(state: Row, reason: str) -> None:
    ended_rows.labels(reason).inc()
