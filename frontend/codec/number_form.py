"""Answers in JSON that differ in the numbers of one tensor alone, and the texts of many such."""

from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from orjson import OPT_SERIALIZE_NUMPY, dumps

_N: Final = ord("n")


class NumberForm(NamedTuple):
    """Form of the answers to results that have one size and one prefix.

    Attributes:
        prefix_bytes: of a result, which decide the shape.
        tail: where the numbers begin in a result.
        dtype: of the numbers.
        shape: of the tensor, rows in front; no size is 0.
        before, after: what stands around the text of the tensor.
    """

    prefix_bytes: int
    tail: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    before: bytes
    after: bytes


@runtime_checkable
class NumberRendering(Protocol):
    """Rendering whose answers may have such a form."""

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """Return the form of the answers to results like this one; None if there is none.

        Args:
            rows: in the result.
            result: all of it.
            batch_id: as in `Rendering`.
        """


def number_texts(arrays: NDArray[Any]) -> list[bytes] | None:
    """Return the JSON text of each of several arrays of numbers, without the outer brackets.

    Args:
        arrays: contiguous, shape [arrays, ...]; no size is 0.

    Returns:
        None if JSON cannot carry a number. Each text lacks a bracket for each of its dimensions at
        either end.
    """
    text = dumps(arrays, None, OPT_SERIALIZE_NUMPY)
    if _N in text:  # null is what orjson writes for NaN and Infinity
        return None
    depth = arrays.ndim
    # Within a text, fewer brackets stand around a comma.
    return text[depth:-depth].split(b"]" * (depth - 1) + b"," + b"[" * (depth - 1))
