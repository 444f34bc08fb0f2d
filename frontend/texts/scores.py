"""Scores of a model as numbers between 0 and 1; pure."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]


def each_between_0_and_1(scores: Scores) -> Scores:
    """Return the logistic function of each score."""
    exponents = np.exp(-np.abs(scores))
    found: Scores = np.where(scores >= 0, 1, exponents) / (1 + exponents)
    return found


def adding_up_to_1(rows: Scores) -> Scores:
    """Return the softmax of each row."""
    with np.errstate(invalid="ignore"):  # Infinity has no share; `expect_finite` refuses it later.
        powers: Scores = np.exp(rows - rows.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers
