"""Percentiles that a number of samples supports. Pure."""

import math
from typing import Final

from ringbatch.bench.statistics.histogram import Histogram

SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)
"""The percentiles that are told, where they can be."""
_DOUBT: Final = 0.01


def samples_needed(share: float) -> int:
    """Return the fewest samples that support a percentile: 662 for 0.99.

    So many that two or more lie above it in 99 of 100 runs: with fewer, one stray request is the
    percentile.
    """
    above = 1 - share
    count = 1
    while share**count + count * above * share ** (count - 1) > _DOUBT:
        count = max(count + 1, int(count * 1.01))
    while share ** (count - 1) + (count - 1) * above * share ** (count - 2) <= _DOUBT:
        count -= 1
    return count


def percentile_ms(times: Histogram, share: float) -> float | None:
    """Return a percentile in milliseconds; None if there are too few samples."""
    if times.total < samples_needed(share):
        return None
    return times.quantile_ns(share) / 1e6


def percentiles_ms(times: Histogram) -> dict[str, float]:
    """Return the percentiles that so many times can tell, under names such as ``p99.9``."""
    found = {name_of(share): percentile_ms(times, share) for share in SHARES}
    return {name: value for name, value in found.items() if value is not None}


def name_of(share: float) -> str:
    """Return the name of a percentile: ``p99.9`` for 0.999."""
    return f"p{share * 100:.10g}"


def curve(times: Histogram, points: int = 60) -> list[tuple[float, float]]:
    """Return a plot's points: shares, evenly spread by 1 / (1 - share), and milliseconds.

    It ends when there are too few samples to go on.
    """
    found = []
    last = 1.0
    while times.total >= samples_needed(1 - 1 / (last * 10)):
        last *= 10
    if times.total < samples_needed(0.5):
        return []
    decades = max(math.log10(last), math.log10(2))
    for step in range(points + 1):
        share = 1 - 10 ** (-decades * step / points)
        found.append((share, times.quantile_ns(share) / 1e6))
    return found
