"""Check for NaN and infinity in outputs: only the request that has one fails."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.worker.outputs import Fault, Outputs, WrongResult
from ringbatch.engine.worker.ragged import Ragged
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.tensor import Tensor

_BF16_EXPONENT: Final = 0x7F80


class FiniteCodec(TensorCodec):
    """As `TensorCodec`, for a model whose answers must not hold NaN or infinity."""

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """See `Codec.check`."""
        outputs: Outputs = super().check(returned, rows, spare)
        return only_finite(outputs, self._outputs)


def only_finite(outputs: Outputs, tensors: Sequence[Tensor]) -> Outputs:
    """Return the outputs with a fault for each element that is NaN or infinite.

    Args:
        outputs: of a model.
        tensors: that it declared them as.
    """
    found = []
    for place, (tensor, array) in enumerate(zip(tensors, outputs.arrays, strict=True)):
        elements = _not_finite(array, tensor)
        if elements is not None and elements.any():
            error = WrongResult(f"output {tensor.name!r} holds NaN or infinity")
            found.append(Fault(place, elements, error))
    return Outputs(outputs.arrays, [*outputs.faults, *found]) if found else outputs


def _not_finite(array: NDArray[Any] | Ragged, tensor: Tensor) -> NDArray[Any] | None:
    if isinstance(array, Ragged):
        rows = [_not_finite(row, tensor) for row in array.rows]
        return np.array([row is not None and bool(row.any()) for row in rows])
    if tensor.datatype.name == "BF16":
        exponents: NDArray[Any] = array & _BF16_EXPONENT
        return np.asarray(exponents == _BF16_EXPONENT)
    return ~np.isfinite(array) if array.dtype.kind == "f" else None
