"""The search: short trials of one factor after the other, then longer ones of the best. Pure.

Settings that share the CPUs are one factor. Each factor is varied alone, from the settings as they
were, and what helps is kept before the next is varied. What limits a server changes once that is
removed, so this is done again until a pass changes nothing, without values that were far behind.
Of all that was tried a few of the best are measured for twice as long, beside the settings as they
were, and fewer of these for four times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Values = Mapping[str, int | float | str]
"""Settings that are chosen together."""
Candidate = Mapping[str, Values]
"""What is chosen, by factor; of those that are left out the settings stay as they are."""

_WORTH: Final = 1.03
"""By which a change has to be better to be made: less may be chance."""
_HOPE: Final = 0.5
"""Of the best value of its factor: one that comes to less is not tried again in the next pass."""
_PASSES: Final = 3
_LATER: Final = 2
"""That are measured for longer."""
_FINALISTS: Final = 2
_SHORT, _LONGER = 1, 2
LONGEST: Final = 4
"""Effort of what the search ends with, in units."""


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
class Gain:
    """What one choice brought when it was tried.

    Attributes:
        factor: of it.
        values: that were chosen.
        ratio: of its score to that without it; None where it had none.
    """

    factor: str
    values: Values
    ratio: float | None


class Search:
    """Asked for trials, told what they came to.

    Args:
        choices: for each factor the values to try.
    """

    def __init__(self, choices: Mapping[str, Sequence[Values]]) -> None:
        self._choices = choices
        self._scores: dict[tuple[str, int], float] = {}
        self._known: dict[str, Candidate] = {}
        self._tried: list[tuple[str, Values, Candidate]] = []
        self._plan = self._trials()
        self.units = 0

    def next(self) -> Trial | None:
        """What is to be measured now; None where all is done."""
        for trial in self._plan:
            if (_name(trial.candidate), trial.effort) not in self._scores:
                return trial
        return None

    def tell(self, trial: Trial, score: float) -> None:
        """Say what a trial came to: more is better, 0 where it could not be measured."""
        name = _name(trial.candidate)
        self._known[name] = trial.candidate
        self._scores[name, trial.effort] = score
        self.units += trial.effort

    def best(self) -> tuple[Candidate, float]:
        """The best settings so far, and their score by that of the settings as they were.

        No change is the best where none is worth it.
        """
        for effort in (LONGEST, _LONGER, _SHORT):
            before = self._score({}, effort)
            found = self._ranked(effort)
            if before and found and found[0]:
                ratio = self._score(found[0], effort) / before
                if ratio >= _WORTH:
                    return found[0], ratio
            if before:
                break
        return {}, 1.0

    def gains(self) -> list[Gain]:
        """What each choice brought when it was tried, in that order."""
        found = []
        for factor, values, earlier in self._tried:
            score = self._score({**earlier, factor: values}, _SHORT)
            before = self._score(earlier, _SHORT)
            if before and self._was_told({**earlier, factor: values}):
                found.append(Gain(factor, values, score / before if score else None))
        return found

    def _trials(self) -> Iterator[Trial]:
        yield Trial({}, _SHORT)
        current: Candidate = {}
        hopeful = {factor: values for factor, values in self._choices.items() if len(values) > 1}
        for _ in range(_PASSES):
            before = current
            for factor, choices in list(hopeful.items()):
                scored = list[tuple[float, Values, Candidate]]()
                for values in choices:
                    candidate: Candidate = {**current, factor: values}
                    if values != current.get(factor):
                        self._tried.append((factor, values, current))
                        yield Trial(candidate, _SHORT)
                    scored.append((self._score(candidate, _SHORT), values, candidate))
                score, _, best = max(scored, key=lambda entry: entry[0])
                hopeful[factor] = [values for found, values, _ in scored if found >= _HOPE * score]
                if score >= _WORTH * self._score(current, _SHORT):
                    current = best
            if current == before:
                break
        for effort, count, ranked_by in (
            (_LONGER, _LATER, _SHORT),
            (LONGEST, _FINALISTS, _LONGER),
        ):
            best_ones = [candidate for candidate in self._ranked(ranked_by) if candidate]
            for candidate in ({}, *best_ones[:count]):
                yield Trial(candidate, effort)

    def _was_told(self, candidate: Candidate) -> bool:
        return (_name(candidate), _SHORT) in self._scores

    def _ranked(self, effort: int) -> list[Candidate]:
        """Those measured with that effort, the best first; without those that have no score."""
        found = [(score, name) for (name, e), score in self._scores.items() if e == effort]
        found.sort(key=lambda entry: -entry[0])
        return [self._known[name] for score, name in found if score > 0]

    def _score(self, candidate: Candidate, effort: int) -> float:
        return self._scores.get((_name(candidate), effort), 0.0)


def _name(candidate: Candidate) -> str:
    """The same for the same settings."""
    parts = {factor: sorted(values.items()) for factor, values in candidate.items()}
    return repr(sorted(parts.items()))
