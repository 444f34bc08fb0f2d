"""The best classes of an output, as Triton's classification extension of V2 has them.

An output that is asked for with the parameter ``classification: k`` is a BYTES tensor in the
answer, of k elements an instance, or fewer if the output has fewer:

    <value>:<index>
    <value>:<index>:<label>

The largest value comes first, of equal ones that of the smaller index, and NaN last. An index
counts all elements of an instance. Floating-point values have six decimals. Elements that the model
has a label for have it.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from ringbatch.frontend.codec.tensor_to_json import Result, whole_shape
from ringbatch.shm.tensor import Tensor

UNCLASSIFIED: Final = ("BOOL", "FP16", "BF16", "BYTES")
"""Datatypes that have no classes."""


class Classes:
    """The best classes of one output of a model.

    Args:
        index: of the output.
        tensor: the output.
        batched: whether the model has a batch dimension.
    """

    def __init__(self, index: int, tensor: Tensor, *, batched: bool) -> None:
        self._index = index
        self._batched = batched
        self._tensor = tensor
        # A datatype without a dtype has no classes either.
        kind = "?" if tensor.datatype.name in UNCLASSIFIED else tensor.datatype.numpy
        self._dtype = np.dtype(kind)

    def of(
        self, rows: int, results: Sequence[Result], count: int
    ) -> tuple[tuple[int, ...], list[bytes]]:
        """Return the shape of the tensor of classes, and its elements.

        Args:
            rows: in all results.
            results: of the parts of a request, with the places of their outputs.
            count: how many are wanted of an instance, at least 1.

        Raises:
            Unwritable: the results differ in their shape.
        """
        each = prod(whole_shape(self._tensor, self._index, rows, results)[1:])
        found: list[bytes] = []
        for memory, placement in results:
            part = placement.parts[self._index]
            values: NDArray[Any] = ndarray((part.shape[0], each), self._dtype, memory, part.offset)
            found += classes_of(values, count, self._tensor.labels)
        most = min(count, each)
        return (rows, most) if self._batched else (most,), found


def classes_of(values: NDArray[Any], count: int, labels: Sequence[str] = ()) -> list[bytes]:
    """Return the elements of the tensor, instance after instance.

    Args:
        values: of shape [instances, elements of each], and none of the datatypes above.
        count: how many are wanted of an instance, at least 1.
        labels: of the elements of an instance, as far as they have any.
    """
    ranked = values
    if values.dtype.kind == "f":
        ranked = np.where(np.isnan(values), -np.inf, values)
    # Sort reversed values and reverse the order, so that the first of equal values stays first.
    last = values.shape[1] - 1
    order = last - np.argsort(ranked[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :count]
    best = np.take_along_axis(values, order, axis=1)
    form = "%f:%d" if values.dtype.kind == "f" else "%d:%d"
    pairs = zip(best.reshape(-1).tolist(), order.reshape(-1).tolist(), strict=True)
    if not labels:
        return [(form % pair).encode() for pair in pairs]
    named = len(labels)
    return [
        f"{form % (value, index)}:{labels[index]}".encode()
        if index < named
        else (form % (value, index)).encode()
        for value, index in pairs
    ]
