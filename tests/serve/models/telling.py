"""Typed answers in parts: one for each word of the text, up to a limit; or fails as it says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("text", "BYTES", [1]), Tensor("limit", "INT64", [1], default=[3])]
outputs = [Tensor("word", "BYTES", [1]), Tensor("sizes", "INT64", [-1])]


def predict(text: NDArray[Any], limit: NDArray[Any]) -> Iterator[Any]:
    words = text[0, 0].decode().split()
    for place, word in enumerate(words[: limit[0, 0]]):
        if word == "raise":
            raise ValueError("raised by the text")
        sizes = np.full((len(text), place + 2), len(word))
        yield np.full((len(text), 1), word.encode(), object), sizes
