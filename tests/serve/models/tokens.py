"""Says of each of its instances how large the batch was, and gives every number back doubled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine import InvalidInput, Tensor

inputs = [Tensor("ids", "INT64", [-1]), Tensor("length", "INT64", [])]
outputs = [
    Tensor("doubled", "INT64", [-1]),
    Tensor("sum", "INT64", []),
    Tensor("batch", "INT64", [2]),
]


def predict(ids: NDArray[Any], length: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if (ids == 666).any():
        raise InvalidInput("not that number")
    own = np.arange(ids.shape[1]) < length[:, None]
    return {
        "doubled": 2 * ids,
        "sum": np.where(own, ids, 0).sum(axis=1),
        "batch": np.repeat([ids.shape], len(ids), axis=0),
    }
