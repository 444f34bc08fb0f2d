"""The bundled model: which digit an 8x8 picture shows.

It is a model file like any other, and an example of one: `ringbatch serve digits.py` would serve
a copy of it. `tests/examples/digits_train.py` makes the weights; running them takes numpy alone.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

Floats = NDArray[np.float32]

inputs = [Tensor("image", "FP32", [64])]  # row by row from the top; 0 is paper, 1 is ink
outputs = [Tensor("scores", "FP32", [10])]  # the probability of each digit; they add up to 1

weights: dict[str, Floats] = {}


def load() -> None:
    """Load the weights, once in each worker before it takes work."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as archive:
        for name in ("hidden_weights", "hidden_bias", "score_weights", "score_bias"):
            weights[name] = archive[name]


def predict(image: Floats) -> Floats:
    """Return the scores, [batch, 10], of the images of one batch, [batch, 64]."""
    hidden = np.maximum(image @ weights["hidden_weights"] + weights["hidden_bias"], 0)
    scores = hidden @ weights["score_weights"] + weights["score_bias"]
    # Softmax does not change with a shift; the largest score at 0 keeps exp() from overflowing.
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares
