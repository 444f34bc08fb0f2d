"""Whether a choice is better than the settings as they are: both are measured anew, in turn. Pure.

The choice is the best of many trials, and so the luckiest of them too: what these say of it is too
much. Trials of its own, beside as many of the settings as they are, say what it is worth.
"""

import math
from collections.abc import Sequence
from typing import Final

from ringbatch.bench.tuning.candidate import Candidate

WORTH: Final = math.log(1.03)
"""By which a change has to be better to be made."""
PAIRS_LEAST: Final = 3
_PAIRS_MOST: Final = 6
_CLEAR: Final = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57}
"""Standard errors by which a mean of so many pairs differs from what it is held against, but for
one time in forty to either side (Student's t)."""
_MISSED: Final = 1.5
"""Logarithm by which settings are better than others that cannot be measured."""


class Proof:
    """Asked for what is to be measured, told what it came to.

    Attributes:
        candidate: the choice.
        scores: of the settings as they are and of the choice, pair by pair; 0 where they could not
            be measured.

    Args:
        candidate: see above.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.scores: list[tuple[float, float]] = []
        self._half: float | None = None

    def next(self) -> Candidate | None:
        """What is to be measured now; None where it is decided."""
        if self._half is None and self._is_decided():
            return None
        return self.candidate if self._choice_is_next() else {}

    def tell(self, score: float) -> None:
        """Say what that came to: more is better."""
        if self._half is None:
            self._half = score
            return
        # Of every other pair the choice is measured first: what drifts then favours neither.
        first, second = self._half, score
        self.scores.append((first, second) if len(self.scores) % 2 == 0 else (second, first))
        self._half = None

    @property
    def holds(self) -> bool:
        """Whether the choice is proven to be better, and by so much that it is worth a change."""
        gains = _gains(self.scores)
        if len(gains) not in _CLEAR:
            return False
        mean, doubt = _mean_and_doubt(gains)
        return mean >= WORTH and mean > doubt

    @property
    def ratio(self) -> float:
        """The scores of the choice by those of the settings as they are."""
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
