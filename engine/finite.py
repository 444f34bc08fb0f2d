"""Answers that must be numbers: a request whose answer holds NaN or infinity fails alone."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.model import Model
from ringbatch.engine.runner import TensorCodec
from ringbatch.engine.tensors import WrongResult
from ringbatch.shm.alike import Alike
from ringbatch.shm.holder import Request
from ringbatch.shm.tensor import Tensor

_BF16_EXPONENT: Final = 0x7F80


class FiniteCodec(TensorCodec):
    """As `TensorCodec`, for a model whose answers must not hold NaN or infinity."""

    def __init__(self, memory: memoryview, model: Model, batched: bool = True) -> None:
        super().__init__(memory, model, batched)
        self._outputs = model.outputs

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """See `Codec.write`."""
        sizes: list[int | WrongResult] = list(super().write(results, requests))
        for tensor, array in zip(self._outputs, results, strict=True):
            bad = rows_not_finite(array, tensor)
            start = 0
            for number, request in enumerate(requests):
                stop = start + request.rows
                if bad[start:stop].any():
                    sizes[number] = WrongResult(f"output {tensor.name!r} holds NaN or infinity")
                start = stop
        return sizes

    def write_alike(self, results: Any, alike: Alike) -> int | None:
        """See `Codec.write_alike`."""
        for tensor, array in zip(self._outputs, results, strict=True):
            if rows_not_finite(array, tensor).any():
                return None
        return super().write_alike(results, alike)


def rows_not_finite(array: NDArray[Any], tensor: Tensor) -> NDArray[np.bool_]:
    """Which rows of an output, as it is written into memory, hold NaN or infinity."""
    found: Any
    if tensor.datatype.name == "BF16":
        found = np.equal(array & _BF16_EXPONENT, _BF16_EXPONENT)
    elif array.dtype.kind == "f":
        found = ~np.isfinite(array)
    else:
        return np.zeros(len(array), dtype=np.bool_)
    rows: NDArray[np.bool_] = found.reshape(len(array), -1).any(axis=1)
    return rows
