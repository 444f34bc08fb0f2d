"""Proof that a choice is better than the present settings, by new trials of both in turn. Pure.

The choice is the best of many trials, so it also had the most luck: those trials overrate it. New
trials of the choice and as many of the present settings show its real gain.
"""

import math
from collections.abc import Sequence
from typing import Final

from ringbatch.bench.tuning.candidate import Candidate

WORTH: Final = math.log(1.03)
"""Logarithm of the least gain that makes a change worth it."""
PAIRS_LEAST: Final = 3
_PAIRS_MOST: Final = 6
_CLEAR: Final = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57}
"""Standard errors beyond which a mean lies by chance only one time in forty to either side
(Student's t), by number of pairs."""
_MISSED: Final = 1.5
"""Logarithm of the gain over settings that cannot be measured."""


class Proof:
    """Series of paired trials: `next` names the settings to measure, `tell` takes the score.

    Attributes:
        candidate: the choice.
        scores: of the present settings and of the choice, pair by pair; 0 for a failed trial.

    Args:
        candidate: see above.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.scores: list[tuple[float, float]] = []
        self._half: float | None = None

    def next(self) -> Candidate | None:
        """Return the settings to measure now; None once the proof is decided."""
        if self._half is None and self._is_decided():
            return None
        return self.candidate if self._choice_is_next() else {}

    def tell(self, score: float) -> None:
        """Take the score of the settings that `next` returned: more is better."""
        if self._half is None:
            self._half = score
            return
        # Every other pair starts with the choice, so that drift favours neither side.
        first, second = self._half, score
        self.scores.append((first, second) if len(self.scores) % 2 == 0 else (second, first))
        self._half = None

    @property
    def holds(self) -> bool:
        """True if the choice is proven to be better by enough to be worth a change."""
        gains = _gains(self.scores)
        if len(gains) not in _CLEAR:
            return False
        mean, doubt = _mean_and_doubt(gains)
        return mean >= WORTH and mean > doubt

    @property
    def ratio(self) -> float:
        """The ratio of the choice's scores to those of the present settings."""
        gains = _gains([pair for pair in self.scores if all(pair)] or self.scores)
        return math.exp(sum(gains) / len(gains)) if gains else 1.0

    def _choice_is_next(self) -> bool:
        return (len(self.scores) % 2 == 1) == (self._half is None)

    def _is_decided(self) -> bool:
        gains = _gains(self.scores)
        if len(gains) not in _CLEAR:
            return False
        mean, doubt = _mean_and_doubt(gains)
        return self.holds or mean + doubt < WORTH or len(gains) == _PAIRS_MOST


def _gains(scores: Sequence[tuple[float, float]]) -> list[float]:
    return [_gain(before, after) for before, after in scores]


def _gain(before: float, after: float) -> float:
    if before and after:
        return max(-_MISSED, min(math.log(after / before), _MISSED))
    return _MISSED * (bool(after) - bool(before))


def _mean_and_doubt(gains: Sequence[float]) -> tuple[float, float]:
    count = len(gains)
    mean = sum(gains) / count
    spread = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (count - 1))
    return mean, _CLEAR[count] * spread / math.sqrt(count)
