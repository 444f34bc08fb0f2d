"""Pooling: from an encoder's vectors of tokens to one vector for each text. Pure.

Arrays: `tokens` FP32 [texts, longest, dims], `mask` of the same first two sizes, 1 for a token of
the text and 0 behind its end; vectors are FP32 [texts, dims].
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pooling = Callable[[Array, Array], Array]


def mean(tokens: Array, mask: Array) -> Array:
    """Return the mean of each text's tokens."""
    # A product of matrices reads the tokens once.
    weights = mask.astype(tokens.dtype)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1)
    pooled: Array = np.matmul(weights[:, np.newaxis], tokens)[:, 0]
    return pooled


def mean_sqrt_length(tokens: Array, mask: Array) -> Array:
    """Return the sum of each text's tokens, divided by the root of their number."""
    weights = mask.astype(tokens.dtype)
    weights /= np.sqrt(np.maximum(weights.sum(axis=1, keepdims=True), 1))
    pooled: Array = np.matmul(weights[:, np.newaxis], tokens)[:, 0]
    return pooled


def largest(tokens: Array, mask: Array) -> Array:
    """Return the largest value of each text's tokens, in each dimension."""
    low = np.array(-np.inf, tokens.dtype)
    pooled: Array = np.where(mask[:, :, np.newaxis] > 0, tokens, low).max(axis=1)
    return pooled


def first(tokens: Array, _mask: Array) -> Array:
    """Return each text's first token, which BERT calls [CLS]."""
    return np.ascontiguousarray(tokens[:, 0])


def last(tokens: Array, mask: Array) -> Array:
    """Return each text's last token."""
    ends = np.maximum(mask.sum(axis=1), 1).astype(np.intp) - 1
    pooled: Array = tokens[np.arange(len(tokens)), ends]
    return pooled


POOLINGS: Final[dict[str, Pooling]] = {
    "cls": first,
    "lasttoken": last,
    "max": largest,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_sqrt_length,
}
"""Poolings by sentence-transformers' names."""


def normalized(vectors: Array) -> Array:
    """Return vectors scaled to length 1; a vector of zeros stays as it is."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, np.newaxis]
    scaled: Array = vectors / np.maximum(lengths, np.float32(1e-12))
    return scaled
