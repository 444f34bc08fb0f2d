"""Conversion of a V2 input that comes in another datatype than the model's.

It makes floats wider, which loses nothing. It also takes wider floats if the model's library makes
them narrower itself, and a table's booleans, which are numbers to such libraries.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.frontend.v2.input import Input, Shape
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Datatype, Tensor

_WIDER: Final = {"FP32": ("FP16",), "FP64": ("FP16", "FP32")}
"""Narrower datatypes whose values each datatype can hold too."""
_BY_LIBRARY: Final = {"sklearn": {"FP32": ("FP64",)}}
"""Datatypes that a library converts itself, by platform."""


def convertible(datatype: Datatype, spec: ModelSpec) -> tuple[str, ...]:
    """Return the other datatypes in which values for one of that datatype may come."""
    found: tuple[str, ...] = _WIDER.get(datatype.name, ())
    found += _BY_LIBRARY.get(spec.platform, {}).get(datatype.name, ())
    return (*found, "BOOL") if spec.nulls and datatype.floating else found


class ConvertedInput(Input):
    """Input whose values come in another datatype than the model's.

    Args:
        tensor: the input.
        datatype: in which its values come.
        model, batched, nulls: as of `Input`.
    """

    def __init__(
        self, tensor: Tensor, datatype: str, model: str, *, batched: bool, nulls: bool
    ) -> None:
        sent = Tensor(tensor.name, datatype, tensor.shape)
        super().__init__(sent, model, batched=batched, nulls=nulls)
        self._from = np.dtype(self._datatype.numpy)
        self._to = np.dtype(tensor.datatype.numpy)

    def packed(
        self, values: list[Any], shape: Shape, *, booleans: bool, where: str = "data"
    ) -> bytes:
        """As in `Input`."""
        return self._converted(super().packed(values, shape, booleans=booleans, where=where))

    def unpacked(self, data: memoryview, shape: Shape) -> Bytes:
        """As in `Input`."""
        return self._converted(super().unpacked(data, shape))

    def settled(self, lazy: LazyBytes, shape: Shape) -> Bytes | LazyBytes:
        """As in `Input`."""
        return self.unpacked(memoryview(lazy.read()), shape)

    def _converted(self, data: Bytes) -> bytes:
        values: NDArray[Any] = np.frombuffer(data, self._from)
        with np.errstate(over="ignore"):
            return values.astype(self._to).tobytes()
