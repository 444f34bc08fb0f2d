"""Requests/s over all combinations, as far as trials tell: a Gaussian process. Pure.

Combinations that are alike have like logarithms of requests/s, the more so the fewer of their
factors differ, and the less these do. So every trial says something of all combinations, those of
one combination add up, and how much trials scatter is found from them too.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ringbatch.bench.tuning.candidate import Values

Floats = npt.NDArray[np.floating[Any]]
Point = tuple[int, ...]
"""Number of each factor's value; 0 is the value as it is."""

_COMMON: Final = 0.6
"""Correlation that is left where one factor differs altogether: its effect is mostly the same
whatever the others are, and not wholly."""
_REACH: Final = 2.0
"""Doublings after which a number's correlation has fallen to 1/e."""
_WORDS_APART: Final = 0.5
"""Distance of two words, in reaches."""
_LEVEL: Final = 2.0
"""Standard deviation of the height of the whole, which nothing is known of."""
_SPANS: Final = (0.25, 0.5, 1.0)
"""Standard deviations that combinations may have."""
_SCATTERS: Final = (0.05, 0.1, 0.2)
"""Standard deviations that trials of one unit may have."""
_MARGIN: Final = 0.01
"""Gain that is hoped for from a trial: without it trials stay near the best so far."""
_FLOOR: Final = 1.5
"""Below the best, where all that is worse counts as alike: it need not be known how bad it is."""


@dataclass(frozen=True)
class Measured:
    """A trial and what it came to.

    Attributes:
        point: that was measured.
        effort: how long, in units.
        score: more is better; 0 where it could not be measured.
    """

    point: Point
    effort: int
    score: float


class Fit(NamedTuple):
    """Belief about every point, in the order of `Surface.points`.

    Attributes:
        means: logarithms of the score.
        doubts: their standard deviations.
        scatter: standard deviation of a trial of one unit.
    """

    means: Floats
    doubts: Floats
    scatter: float

    def expected_gains(self, tried: Sequence[int]) -> Floats:
        """Return how much a trial of each point is expected to raise the best mean so far."""
        # What a trial would move the mean by.
        moves = self.doubts**2 / np.hypot(self.doubts, self.scatter)
        ahead = (self.means - self.means[list(tried)].max() - _MARGIN) / moves
        chance = np.array([0.5 + math.erf(one / math.sqrt(2)) / 2 for one in ahead])
        density = np.exp(-(ahead**2) / 2) / math.sqrt(2 * math.pi)
        gains: Floats = moves * (ahead * chance + density)
        return gains


class Surface:
    """All combinations of some factors.

    Args:
        factors: of each its values, the one as it is first; that is empty where it is not known.

    Attributes:
        points: all of them.
    """

    def __init__(self, factors: Sequence[Sequence[Values]]) -> None:
        self.points: list[Point] = list(itertools.product(*(range(len(f)) for f in factors)))
        self._numbers = {point: number for number, point in enumerate(self.points)}
        self._alike = np.ones((len(self.points), len(self.points)))
        for values, numbers in zip(factors, zip(*self.points, strict=True), strict=True):
            one = [[_COMMON + (1 - _COMMON) * _alike(a, b) for b in values] for a in values]
            self._alike *= np.array(one)[np.ix_(numbers, numbers)]

    def far_alone(self) -> list[Point]:
        """Return for each factor the value least like its present one, with all others alike."""
        found = []
        for place in range(len(self.points[0])):
            alone = [one for one in self.points if one[place] and sum(map(bool, one)) == 1]
            if alone:
                found.append(min(alone, key=lambda one: self._alike[0, self._numbers[one]]))
        return found

    def number(self, point: Point) -> int:
        """Return a point's place in `points`."""
        return self._numbers[point]

    def fit(self, trials: Sequence[Measured]) -> Fit:
        """Fit the surface to trials, of which at least one has a score."""
        efforts = dict[int, float]()
        sums = dict[int, float]()
        top = math.log(max(trial.score for trial in trials))
        for trial in trials:
            number = self._numbers[trial.point]
            below = math.log(trial.score) - top if trial.score > 0 else -_FLOOR
            efforts[number] = efforts.get(number, 0.0) + trial.effort
            sums[number] = sums.get(number, 0.0) + trial.effort * max(below, -_FLOOR)
        tried = list(efforts)
        weights = np.array([efforts[number] for number in tried])
        heights = np.array([sums[number] for number in tried]) / weights
        alike = self._alike[np.ix_(tried, tried)]
        likely = [
            _likelihood(alike, weights, heights, span, scatter)
            for span, scatter in itertools.product(_SPANS, _SCATTERS)
        ]
        _, span, scatter, root = max(likely, key=lambda one: one[0])
        spread = np.linalg.solve(root, _covariance(self._alike[tried], span))
        means = spread.T @ np.linalg.solve(root, heights) + top
        known = span**2 + _LEVEL**2 - (spread**2).sum(axis=0)
        return Fit(means, np.sqrt(np.maximum(known, 1e-9)), scatter)


def _covariance(alike: Floats, span: float) -> Floats:
    return span**2 * alike + _LEVEL**2


def _likelihood(
    alike: Floats, weights: Floats, heights: Floats, span: float, scatter: float
) -> tuple[float, float, float, Floats]:
    """Return the log likelihood but for a constant, its arguments, and a root of the covariance."""
    root = np.linalg.cholesky(_covariance(alike, span) + np.diag(scatter**2 / weights))
    white = np.linalg.solve(root, heights)
    return float(-(white @ white) / 2 - np.log(np.diag(root)).sum()), span, scatter, root


def _alike(one: Values, other: Values) -> float:
    """Return the correlation of the effects of two values of a factor."""
    if one == other:
        return 1.0
    if not one.keys() & other.keys():
        return 0.0
    return math.exp(-sum(_apart(one[key], other[key]) for key in one.keys() & other.keys()))


def _apart(one: float | str, other: float | str) -> float:
    if isinstance(one, str) or isinstance(other, str):
        return 0.0 if one == other else _WORDS_APART
    if one == other:
        return 0.0
    # 0 is another thing, as for a model without batches.
    return abs(math.log2(one / other)) / _REACH if min(one, other) > 0 else math.inf
