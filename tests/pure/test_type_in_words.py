"""Tests type_in_words of shm/errors.py."""

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from ringbatch.shm.errors import type_in_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (1, "an int"),
        (object(), "an object"),
        ([], "a list"),
        (np.zeros(2), "an ndarray"),
        (np.uint8(1), "a uint8"),
        (UUID(int=1), "a UUID"),
        (OSError(), "an OSError"),
    ],
)
def test_a_type_has_the_article_with_which_it_is_spoken(value: Any, words: str) -> None:
    assert type_in_words(value) == words
