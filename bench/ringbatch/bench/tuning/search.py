"""The search: Bayesian optimisation. Pure.

What is measured next is the combination from which the most is expected, by a Gaussian process over
all of them (surface.py): one that may be better than the best so far, because it is like good ones
or like none, or the best itself where it may have been lucky. First each factor is changed alone,
so that what cannot be measured at all is known by its cause. Settings that share the CPUs are one
factor. It ends once it expects little of any trial, or its time is over. Last it measures its
choice and the present settings in turn, for longer (proof.py); only these trials decide.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ringbatch.bench.tuning.candidate import Candidate, Values
from ringbatch.bench.tuning.proof import WORTH, Proof
from ringbatch.bench.tuning.surface import Fit, Measured, Point, Surface

_SAME: Final = math.log(1.02)
"""Difference below which points are as good; the one of fewer changes is chosen."""
_LITTLE: Final = 0.001
"""Expected of a trial, below which no more are made."""
_SHORT, _LONGER = 1, 2
"""Effort of a trial, in units."""
LONGEST: Final = 4
"""Effort of a trial of the whole grid, against which the search is held."""
START: Final = 2.5
"""Cost of a trial beside its effort, in units: the engine's start and end, and its warm-up."""
_CLIMB: Final = 3
"""Cost of the first trial beside that: it finds the number of connections."""
_SHARE: Final = 0.1
"""Share of the whole grid's cost that a search may cost before its proof."""
_LEAST: Final = 60
"""Least budget, even if the grid is small."""
_MOST: Final = 240
"""Largest budget, even if the grid is large."""


@dataclass(frozen=True)
class Trial:
    """Something to measure.

    Attributes:
        candidate: the settings.
        effort: how long, in units.
    """

    candidate: Candidate
    effort: int


@dataclass(frozen=True)
class Estimate:
    """Estimated score of one value of a factor, with all other factors as chosen.

    Attributes:
        factor: the factor.
        values: the settings.
        ratio: of its score to that of the choice; None if all its trials failed.
        trials: the number of trials of exactly these settings; with 0, the ratio is an estimate
            from other trials.
    """

    factor: str
    values: Values
    ratio: float | None
    trials: int


class Search:
    """Asked for trials, told what they came to.

    Args:
        choices: for each factor the values to try.
        present: the settings as they are, as far as they are known.

    Attributes:
        cost: of what was tried, in units, starts included.
    """

    def __init__(
        self, choices: Mapping[str, Sequence[Values]], present: Values | None = None
    ) -> None:
        self._factors = {
            factor: _present_first(values, present or {}) for factor, values in choices.items()
        }
        self._trials = list[Measured]()
        self._proof: Proof | None = None
        self._fitted: tuple[int, Fit] | None = None
        self.cost = 0.0
        self._choices = dict(choices)
        self._begin()

    def _begin(self) -> None:
        self._surface = Surface(list(self._factors.values()))
        self._first = [self._surface.points[0], *self._surface.far_alone()]
        combinations = math.prod(len(values) for values in self._choices.values())
        grid = _SHARE * combinations * (START + LONGEST)
        self.cost_max = min(max(grid, _LEAST), _MOST)

    def leave_out(self, factor: str) -> bool:
        """Stop to vary a factor, which stays as it is.

        Nothing but the settings as they are has been tried so far.

        Returns:
            False if the factor was not varied.
        """
        if factor not in self._factors:
            return False
        del self._factors[factor], self._choices[factor]
        self._begin()
        origin = self._surface.points[0]
        self._trials = [Measured(origin, one.effort, one.score) for one in self._trials]
        self._fitted = None
        return True

    def next(self) -> Trial | None:
        """Return the next trial; None if all is done."""
        if self._proof is None and len(self._trials) < len(self._first):
            return Trial(self._candidate(self._first[len(self._trials)]), _SHORT)
        if self._proof is None:
            trial = self._promising()
            if trial is not None or not self.conclude():
                return trial
        assert self._proof is not None, "there is something to prove"
        candidate = self._proof.next()
        return None if candidate is None else Trial(candidate, _LONGER)

    def conclude(self) -> bool:
        """End the search and start the proof of its choice.

        Returns:
            False if the proof has begun already, or the search has found nothing.
        """
        if self._proof is not None or not self.promising()[0]:
            return False
        self._proof = Proof(self._candidate(self._simplest()))
        return True

    def tell(self, trial: Trial, score: float) -> None:
        """Record the score of a trial: more is better, 0 if it could not be measured.

        The settings as they are have a score the first time.
        """
        self._trials.append(Measured(self._point(trial.candidate), trial.effort, score))
        self.cost += START + trial.effort + (_CLIMB if len(self._trials) == 1 else 0)
        if self._proof is not None and trial.effort == _LONGER:
            self._proof.tell(score)

    def best(self) -> tuple[Candidate, float]:
        """Return the settings that are proven to be better, and their ratio in the proof's scores.

        Without a proven change, these are no settings and 1.
        """
        if self._proof is None or not self._proof.holds:
            return {}, 1.0
        return self._proof.candidate, self._proof.ratio

    @property
    def pairs(self) -> int:
        """The number of pairs of trials in the proof."""
        return 0 if self._proof is None else len(self._proof.scores)

    def promising(self) -> tuple[Candidate, float]:
        """Return settings that may be better but are not proven, and their ratio by all trials.

        Without any, these are no settings and 1.
        """
        if not self._trials or self.best()[0]:
            return {}, 1.0
        means, choice = self._fit().means, self._simplest()
        gain = float(means[self._surface.number(choice)] - means[0])
        return (self._candidate(choice), math.exp(gain)) if gain >= WORTH else ({}, 1.0)

    def estimates(self) -> list[Estimate]:
        """Return an estimate of each value beside the best settings so far."""
        if not self._trials:
            return []
        means, choice = self._fit().means, self._point(self.best()[0])
        chosen, measured = means[self._surface.number(choice)], self._measured(choice)
        found = []
        for index, (factor, values) in enumerate(self._factors.items()):
            for number, value in enumerate(values):
                point = (*choice[:index], number, *choice[index + 1 :])
                gain = float(means[self._surface.number(point)] - chosen)
                if (own := self._measured(point)) is not None and measured is not None:
                    gain = own - measured
                scores = [one.score for one in self._trials if one.point[index] == number]
                failed = bool(scores) and not any(scores)
                trials = sum(one.point == point for one in self._trials)
                if value:
                    ratio = None if failed else math.exp(gain)
                    found.append(Estimate(factor, value, ratio, trials))
        return found

    def _measured(self, point: Point) -> float | None:
        """Return the mean logarithm of the scores of a point's trials; None without a score."""
        own = [one for one in self._trials if one.point == point and one.score]
        if not own:
            return None
        weighted = sum(one.effort * math.log(one.score) for one in own)
        return weighted / sum(one.effort for one in own)

    def _promising(self) -> Trial | None:
        """Return the trial with the highest expectation.

        It is None if that is low, or if time is left for the last trials alone.
        """
        room = self.cost_max - self.cost - 2 * (START + _LONGER)
        if len(self._surface.points) == 1 or room < START + _SHORT:
            return None
        tried = [self._surface.number(one.point) for one in self._trials]
        gains = self._fit().expected_gains(tried)
        most = int(gains.argmax())
        if gains[most] < _LITTLE:
            return None
        return Trial(self._candidate(self._surface.points[most]), _SHORT)

    def _choice(self) -> Point:
        """Return the best tried point that always had a score; among equals the nearest."""
        means = self._fit().means
        failed = {one.point for one in self._trials if not one.score}
        tried = {one.point for one in self._trials} - failed
        scores = {point: float(means[self._surface.number(point)]) for point in tried}
        enough = max(scores.values()) - _SAME
        return min(
            (point for point in tried if scores[point] >= enough),
            key=lambda point: (sum(map(bool, point)), -scores[point]),
        )

    def _simplest(self) -> Point:
        """Return the choice without changes that seem to be of no use, tried or not."""
        means, point = self._fit().means, self._choice()
        enough = means[self._surface.number(point)] - _SAME
        while any(point):
            fewer = [
                (*point[:index], 0, *point[index + 1 :])
                for index, number in enumerate(point)
                if number
            ]
            best = max(fewer, key=lambda one: float(means[self._surface.number(one)]))
            if means[self._surface.number(best)] < enough:
                break
            point = best
        return point

    def _fit(self) -> Fit:
        if self._fitted is None or self._fitted[0] != len(self._trials):
            self._fitted = len(self._trials), self._surface.fit(self._trials)
        return self._fitted[1]

    def _candidate(self, point: Point) -> Candidate:
        return {
            factor: values[number]
            for (factor, values), number in zip(self._factors.items(), point, strict=True)
            if number
        }

    def _point(self, candidate: Candidate) -> Point:
        return tuple(
            values.index(candidate[factor]) if factor in candidate else 0
            for factor, values in self._factors.items()
        )


def _present_first(choices: Sequence[Values], present: Values) -> list[Values]:
    """Return a factor's present value, empty if it is not wholly known, and all others to try."""
    for keys in dict.fromkeys(tuple(values) for values in choices):
        now = {key: present[key] for key in keys if key in present}
        if len(now) == len(keys) == len(present.keys() & {k for v in choices for k in v}):
            return [now, *(values for values in choices if values != now)]
    return [{}, *choices]
