"""Times in bins whose width is a share of the time, so that histograms of many processes add up.

A bin is at most 1/128 of the times in it, from a nanosecond to 2.4 hours, in 5,248 bins.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_BITS: Final = 7
_STEPS: Final = 1 << _BITS
"""Bins for each power of two."""
_MAX_NS: Final = (1 << 47) - 1
BINS: Final = (47 - _BITS + 1) * _STEPS

Counts = NDArray[np.int64]


def bins_of(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each time, clamped to 0 and 39 hours."""
    times = np.clip(times_ns, 0, _MAX_NS)
    # Of floats the exponent is exact: 2^47 is far below the 53 bits of their mantissa.
    exponents = np.maximum(np.frexp(times.astype(np.float64))[1] - 1, _BITS) - _BITS
    found: NDArray[np.int64] = exponents * _STEPS + (times >> exponents)
    return found


def lower_edge_ns(number: int) -> int:
    """Return the shortest time in a bin."""
    exponent = max(number // _STEPS - 1, 0)
    return (number - exponent * _STEPS) << exponent


def upper_edge_ns(number: int) -> int:
    """Return the longest time in a bin."""
    return lower_edge_ns(number + 1) - 1


class Histogram:
    """Histogram of times.

    Attributes:
        counts: [BINS].
        total: how many there are.
    """

    def __init__(self, counts: Counts | None = None) -> None:
        self.counts = np.zeros(BINS, np.int64) if counts is None else counts
        self.total = int(self.counts.sum())

    @classmethod
    def of(cls, times_ns: NDArray[np.int64]) -> "Histogram":
        """Return the histogram of times: [count]."""
        return cls(np.bincount(bins_of(times_ns), minlength=BINS).astype(np.int64))

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)

    def quantile_ns(self, share: float) -> int:
        """Return the time that a share of all times does not exceed, at most 1 % too long.

        Raises:
            ValueError: there are no times.
        """
        if self.total == 0:
            raise ValueError("there are no times")
        rank = max(int(np.ceil(share * self.total)), 1)
        return upper_edge_ns(int(np.searchsorted(np.cumsum(self.counts), rank)))

    def as_object(self) -> dict[str, Any]:
        """Return the bins with times and their counts, as an object for JSON."""
        (used,) = np.nonzero(self.counts)
        return {"bins": used.tolist(), "counts": self.counts[used].tolist()}

    @classmethod
    def from_object(cls, found: Mapping[str, Any]) -> "Histogram":
        """Return the histogram of `as_object`."""
        counts = np.zeros(BINS, np.int64)
        counts[np.asarray(found["bins"], np.int64)] = found["counts"]
        return cls(counts)
