"""Interleaved rounds, and figures of several of them together. Pure apart from the runs themselves.

A machine's speed drifts over minutes, with its temperature and its neighbours. So the entries of a
comparison run in turn, A B C A B C. A ratio is formed within a round, before the median of all
rounds is taken.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles
from typing import TypeVar

T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """The median of some values, with the smallest and the largest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)}..{number(self.high)})"


@dataclass(frozen=True)
class PairedRatio:
    """Ratio of two entries that ran in many pairs: its median, quartiles, and standard error.

    Attributes:
        error: of the median, as of a normal sample whose deviation the quartiles tell; a few wild
            pairs do not widen it.
    """

    median: float
    low: float
    high: float
    error: float


def interleave(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield (round, name): every name once, then every name again."""
    for turn in range(rounds):
        for name in names:
            yield turn, name


def run_rounds(
    names: Sequence[Name], rounds: int, run: Callable[[int, Name], T]
) -> dict[Name, list[T]]:
    """Call `run(round, name)` in interleaved order; return the results of each name by round."""
    results: dict[Name, list[T]] = {name: [] for name in names}
    for turn, name in interleave(names, rounds):
        results[name].append(run(turn, name))
    return results


def spread(values: Sequence[float]) -> Spread:
    """Return median, minimum and maximum of at least one value."""
    return Spread(median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of ours / theirs, formed within each round.

    Raises:
        ValueError: the two have a different number of rounds.
    """
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> PairedRatio:
    """Return the ratio ours / theirs, formed within each of at least two pairs.

    Raises:
        ValueError: the two have a different number of pairs.
    """
    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = quantiles(found, n=4, method="inclusive")
    deviation = (high - low) / 1.349
    return PairedRatio(middle, low, high, 1.2533 * deviation / sqrt(len(found)))


def number(value: float) -> str:
    """Return a figure with three digits or more, and thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal: the first column flush left, the others flush right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)
