"""The best classes of an output, as Triton's classification extension of V2 has them.

An output that is asked for with the parameter ``classification: k`` is a BYTES tensor in the
answer, of k elements an instance, or fewer where the output has fewer:

    <value>:<index>

The largest value comes first, of equal ones that of the smaller index, and NaN last. An index
counts all elements of an instance. Floating-point values have six decimals. A label would follow,
but no model has labels.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

UNCLASSIFIED: Final = ("BOOL", "FP16", "BF16", "BYTES")
"""Datatypes that have no classes."""


def classes_of(values: NDArray[Any], count: int) -> list[bytes]:
    """The elements of the tensor, instance after instance.

    Args:
        values: of shape [instances, elements of each], and none of the datatypes above.
        count: how many are wanted of an instance, at least 1.
    """
    ranked = values
    if values.dtype.kind == "f":
        ranked = np.where(np.isnan(values), -np.inf, values)
    # The order of what is reversed, reversed: of equal values the first is first.
    last = values.shape[1] - 1
    order = last - np.argsort(ranked[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :count]
    best = np.take_along_axis(values, order, axis=1)
    form = "%f:%d" if values.dtype.kind == "f" else "%d:%d"
    pairs = zip(best.reshape(-1).tolist(), order.reshape(-1).tolist(), strict=True)
    return [(form % pair).encode() for pair in pairs]
