"""A text model in miniature: what it costs grows with the square of the length, and padding is
masked, so that it changes no answer."""

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("ids", "INT64", [-1]), Tensor("mask", "INT64", [-1])]
outputs = [Tensor("embedding", "FP32", [64])]

WORDS = 1000
# RandomState's stream is frozen by numpy, so that whoever checks the answers has the same weights.
TABLE = np.random.RandomState(5).standard_normal((WORDS, 64)).astype(np.float32)
MIX = np.random.RandomState(6).standard_normal((64, 64)).astype(np.float32) / 8


def predict(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """Map [batch, n] words to the mean of what they become in each other's light, [batch, 64]."""
    words = TABLE[ids % WORDS]
    hidden = np.float32(-1e9) * (1 - mask[:, None, :]).astype(np.float32)
    scores = words @ (words @ MIX).transpose(0, 2, 1) / np.float32(8) + hidden
    scores -= scores.max(axis=2, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(axis=2, keepdims=True)
    seen = (mask[:, :, None] * (weights @ words)).sum(axis=1)
    return np.asarray(seen / mask.sum(axis=1, keepdims=True), np.float32)
