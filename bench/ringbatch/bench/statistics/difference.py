"""Difference between two sets of rounds: whether there is one, and its size. Pure.

Chance is passed in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

_RESAMPLES: Final = 1000
_EXACT_MAX: Final = 20
"""Rounds on both sides together up to which orders are counted and not approximated."""


@dataclass(frozen=True)
class Difference:
    """Difference between two sets of rounds.

    Attributes:
        ratio: the median of the later one by that of the earlier one.
        low: of the interval around it.
        high: of the same.
        doubt: the probability of so clear an order of the rounds if nothing differs.
        differs: True if both show a difference: the interval excludes 1, and the doubt is small
            enough.
    """

    ratio: float
    low: float
    high: float
    doubt: float
    differs: bool


def difference(
    earlier: Sequence[float], later: Sequence[float], doubt: float, random: np.random.Generator
) -> Difference:
    """Compare the rounds of two results.

    Neither alone is trusted: an interval of few rounds is too narrow, and an order says nothing of
    how much. That both must agree keeps false alarms rarer than `doubt`.

    Args:
        earlier: a figure above 0 for each round.
        later: the same.
        doubt: how often equal things may be called different.
        random: for the bootstrap.
    """
    a, b = np.asarray(earlier, np.float64), np.asarray(later, np.float64)
    ratios = _resampled(b, random) / _resampled(a, random)
    low, high = np.quantile(ratios, (doubt / 2, 1 - doubt / 2))
    chance = order_doubt(earlier, later)
    differs = bool((low > 1 or high < 1) and chance <= doubt)
    return Difference(float(np.median(b) / np.median(a)), float(low), float(high), chance, differs)


def rounds_needed(doubt: float) -> int:
    """Return the fewest rounds on each side that can prove a difference at all."""
    rounds = 2
    while 2 / math.comb(2 * rounds, rounds) > doubt:
        rounds += 1
    return rounds


def order_doubt(earlier: Sequence[float], later: Sequence[float]) -> float:
    """Return the probability of so clear an order if nothing differs (Mann-Whitney, both sides)."""
    m, n = len(earlier), len(later)
    twice = sum(2 * (a < b) + (a == b) for a in earlier for b in later)
    distance = abs(twice - m * n)
    if m + n <= _EXACT_MAX and len({*earlier, *later}) == m + n:
        counts = _orders(m, n)
        extreme = sum(count for u, count in enumerate(counts) if abs(2 * u - m * n) >= distance)
        return extreme / sum(counts)
    _, ties = np.unique(np.concatenate([earlier, later]), return_counts=True)
    total = m + n
    tied = float((ties.astype(np.float64) ** 3 - ties).sum())
    spread = m * n / 12 * (total + 1 - tied / (total * (total - 1)))
    if spread <= 0:
        return 1.0
    z = max(distance / 2 - 0.5, 0) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2))


def _resampled(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    chosen = random.integers(0, len(values), (_RESAMPLES, len(values)))
    found: np.ndarray = np.median(values[chosen], axis=1)
    return found


@cache
def _orders(m: int, n: int) -> tuple[int, ...]:
    """Count the orders of m and n distinct values by their pairs in one direction."""
    if m == 0 or n == 0:
        return (1,)
    with_last_b, with_last_a = _orders(m, n - 1), _orders(m - 1, n)
    counts = [0] * (m * n + 1)
    for u, count in enumerate(with_last_a):
        counts[u] += count
    for u, count in enumerate(with_last_b):
        counts[u + m] += count
    return tuple(counts)
