"""BYTES tensors for models that take text."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.model import InvalidInput


def decoded(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return the elements of a BYTES input as `str`, same shape.

    Raises:
        InvalidInput: one of them is not UTF-8.
    """
    texts = np.empty(values.size, dtype=object)
    try:
        texts[:] = [value.decode() for value in values.reshape(-1)]
    except UnicodeDecodeError:
        raise InvalidInput(f"input {name!r} holds bytes that are not UTF-8 text") from None
    return texts.reshape(values.shape)
