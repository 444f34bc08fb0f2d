"""Steadiness of a run: little variation, and no trend. Pure.

Either alone is fooled: a slow drift varies little from one window to the next, and a trend test
finds nothing in wild swings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WINDOWS: Final = 10
VARIATION_MAX: Final = 0.25
"""Most variation of a window's median time, as a share of the middle one."""
DRIFT_MAX: Final = 0.1
"""Least drift from the first to the last window that matters, as a share of the middle one."""
_DOUBT: Final = 0.01
_WINDOWS_MIN: Final = 6
"""Fewest windows: of fewer, no order is rare enough to prove a trend."""


@dataclass(frozen=True)
class Steadiness:
    """Steadiness of a run, by its windows.

    Attributes:
        steady: True if there was a steady state; None if the run has too few windows to tell.
        variation: spread of the windows, as a share of the middle one.
        drift: from the first to the last window by a straight line, as the same share.
        why: the fault, in words; empty if there is none.
    """

    steady: bool | None
    variation: float
    drift: float
    why: str


def steadiness(windows: Sequence[float]) -> Steadiness:
    """Return the steadiness of a figure over consecutive windows."""
    if len(windows) < _WINDOWS_MIN:
        return Steadiness(None, 0.0, 0.0, f"too short to tell: {len(windows)} windows with answers")
    values = np.asarray(windows, np.float64)
    middle = float(np.median(values))
    if middle <= 0:
        return Steadiness(None, 0.0, 0.0, "too quick to tell")
    # By the quartiles, as one window in which the host did something else is no unsteady server.
    low, high = np.quantile(values, (0.25, 0.75))
    variation = float((high - low) / middle)
    drift = theil_slope(windows) * (len(values) - 1) / middle
    reasons = []
    if variation > VARIATION_MAX:
        reasons.append(f"its windows vary by {variation:.0%}")
    if abs(drift) > DRIFT_MAX and trend_doubt(windows) < _DOUBT:
        reasons.append(f"its times drift by {drift:+.0%} from its begin to its end")
    return Steadiness(not reasons, variation, drift, " and ".join(reasons))


def theil_slope(values: Sequence[float]) -> float:
    """Return the median slope of all pairs, a step."""
    slopes = [
        (values[later] - values[early]) / (later - early)
        for early in range(len(values))
        for later in range(early + 1, len(values))
    ]
    return float(np.median(slopes))


def trend_doubt(values: Sequence[float]) -> float:
    """Return the probability of so clear an order without a trend (Mann-Kendall, both sides)."""
    count = len(values)
    score = sum(
        int(np.sign(values[later] - values[early]))
        for early in range(count)
        for later in range(early + 1, count)
    )
    _, ties = np.unique(np.asarray(values), return_counts=True)
    spread = count * (count - 1) * (2 * count + 5)
    spread -= sum(int(t) * (int(t) - 1) * (2 * int(t) + 5) for t in ties)
    if score == 0 or spread <= 0:
        return 1.0
    z = (abs(score) - 1) / math.sqrt(spread / 18)
    return math.erfc(z / math.sqrt(2))
