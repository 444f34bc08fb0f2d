"""BF16, the upper half of an FP32, which numpy lacks: as its bits in memory, as FP32 elsewhere."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_HALF_BITS: Final = 16
_BELOW_HALF: Final = 0x7FFF
"""Number that rounds up if the dropped bits are more than half of the last bit that stays."""
_QUIET: Final = 0x40


def widened(bits: NDArray[Any]) -> NDArray[Any]:
    """Return BF16 bits as FP32 numbers."""
    return (bits.astype("<u4") << _HALF_BITS).view("<f4")


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of the nearest BF16; ties go to even, and NaN stays NaN.

    Args:
        values: FP32.
    """
    # Of no dimensions it would be a scalar, which warns where arrays wrap.
    bits = np.atleast_1d(values).view("<u4")
    upper = bits >> _HALF_BITS
    nearest = bits + _BELOW_HALF + (upper & 1) >> _HALF_BITS
    narrow = np.where(np.isnan(values), upper | _QUIET, nearest).astype("<u2")
    return narrow.reshape(values.shape)
