"""Vectors of texts out of those of their tokens, against the same written for one text alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.runtimes.texts.pooling import POOLINGS, normalized

ALONE: dict[str, Callable[[Any], Any]] = {
    "cls": lambda vectors: vectors[0],
    "lasttoken": lambda vectors: vectors[-1],
    "max": lambda vectors: vectors.max(axis=0),
    "mean": lambda vectors: vectors.mean(axis=0),
    "mean_sqrt_len_tokens": lambda vectors: vectors.sum(axis=0) / np.sqrt(len(vectors)),
}


@pytest.mark.parametrize("name", POOLINGS)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_values_behind_the_end_of_a_text_count_for_nothing(
    name: str, lengths: list[int], seed: int
) -> None:
    tokens = np.random.default_rng(seed).normal(size=(len(lengths), 9, 4)).astype("f4")
    mask = np.arange(9) < np.array(lengths)[:, None]
    found = POOLINGS[name](tokens, mask)
    expected = [
        ALONE[name](vectors[:length]) for vectors, length in zip(tokens, lengths, strict=True)
    ]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-4, atol=1e-5)


def test_vectors_of_length_1_and_one_without_a_direction() -> None:
    found = normalized(np.array([[3, 4], [0, 0]], "f4"))
    np.testing.assert_allclose(found, np.array([[0.6, 0.8], [0, 0]]))
