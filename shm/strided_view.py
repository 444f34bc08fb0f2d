"""Strided numpy view of the segment, to copy many payloads of one size at once.

All payloads start on multiples of 64 bytes. So all runs of n bytes that could be a payload are
one strided array of items of n bytes. The payloads of many requests are a selection from it, in
any lanes.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.layout import ALIGNMENT

OFFSET_BITS: Final = ALIGNMENT.bit_length() - 1
"""An offset in bytes, shifted right by so many, is the number of an item."""
_VIEWS_KEPT: Final = 1024


class StridedView:
    """The segment seen as every run of n bytes that starts on a payload boundary."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._views: dict[int, NDArray[Any]] = {}

    def of(self, size: int) -> NDArray[Any]:
        """Return items of `size` bytes; item i starts at byte 64 i of the segment."""
        view = self._views.get(size)
        if view is None:
            if len(self._views) >= _VIEWS_KEPT:
                self._views.clear()
            view = self._views[size] = self.items(np.dtype(f"V{size}"))
        return view

    def items(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return items of a type; item i starts at byte 64 i of the segment."""
        count = (len(self._memory) - dtype.itemsize) // ALIGNMENT + 1
        return np.ndarray((count,), dtype=dtype, buffer=self._memory, strides=(ALIGNMENT,))
