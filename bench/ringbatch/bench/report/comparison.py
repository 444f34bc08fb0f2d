"""Comparison of two results: which figures differ, by how much, and whether too much. Pure."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ringbatch.bench.report.point import Point
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.words import number, table
from ringbatch.bench.statistics.difference import Difference, difference, rounds_needed

DOUBT: Final = 0.05
"""Share of equal runs that may be called different."""
_MACHINE: Final = {
    "cpu": "CPU",
    "cores": "number of CPUs",
    "kernel": "kernel",
    "python": "version of Python",
    "compiled": "build, compiled or not,",
}
_SETTINGS: Final = (
    *("path", "protocol", "request_bytes", "connections", "arrivals", "generators", "engines"),
)
_LATER_SETTINGS: Final = {"heads": "same", "answers": "whole"}
"""Further settings, with the value of older results, which lack them."""
_HEADING: Final = ("", "earlier", "later", "cost of it", "interval", "")


class NotComparable(ValueError):
    """The two results cannot be held against each other; the message says why."""


@dataclass(frozen=True)
class Compared:
    """Figure that two results have in common.

    Attributes:
        name: its name.
        earlier: its median in the earlier result.
        later: its median in the later result.
        cost: cost in the later result, as a share of that in the earlier one: above 1 is worse.
        worse: whether it is worse by more than the threshold, and proven to be.
        better: the same, in the other direction.
    """

    name: str
    earlier: float
    later: float
    cost: Difference
    worse: bool
    better: bool


def unlike(earlier: Result, later: Result) -> list[str]:
    """Return why two results are of different things, in words."""
    found = [
        f"the {word} differs: {earlier.machine.get(key)} and {later.machine.get(key)}"
        for key, word in _MACHINE.items()
        if earlier.machine.get(key) != later.machine.get(key)
    ]
    found += [
        f"{key} differs: {earlier.settings.get(key)} and {later.settings.get(key)}"
        for key in _SETTINGS
        if earlier.settings.get(key) != later.settings.get(key)
    ]
    for key, usual in _LATER_SETTINGS.items():
        before, after = (one.settings.get(key, usual) for one in (earlier, later))
        if before != after:
            found.append(f"{key} differs: {before} and {after}")
    return found


def compared(
    earlier: Result, later: Result, threshold: float, random: np.random.Generator
) -> list[Compared]:
    """Return a comparison of each figure that both results have.

    The doubt is shared among the figures, so that all together stay within it.

    Raises:
        NotComparable: they share no figure, or only one has it where both should, or they have too
            few rounds to prove anything.
    """
    _expect_both_or_none(earlier.lone, later.lone)
    _expect_both_or_none(earlier.closed, later.closed)
    pairs = _pairs(earlier, later)
    if not pairs:
        raise NotComparable("they share no figure that is not void")
    doubt = DOUBT / len(pairs)
    rounds = min(len(values) for *_, a, b in pairs for values in (a, b))
    if rounds < rounds_needed(doubt):
        raise NotComparable(
            f"{rounds} rounds prove nothing: measure with --rounds {rounds_needed(doubt)} or more"
        )
    found = []
    for name, more_is_better, a, b in pairs:
        costs = (
            difference(b, a, doubt, random) if more_is_better else difference(a, b, doubt, random)
        )
        # The whole interval: where the threshold is the truth, half of all ratios are beyond it.
        worse = costs.differs and costs.low > 1 + threshold
        better = costs.differs and costs.high < 1 / (1 + threshold)
        medians = float(np.median(a)), float(np.median(b))
        found.append(Compared(name, *medians, costs, worse, better))
    return found


def _expect_both_or_none(earlier: Point, later: Point) -> None:
    """Refuse to compare if one figure has become void, as it may be the worst of all."""
    if bool(earlier.void) == bool(later.void):
        return
    which, point = ("earlier", earlier) if earlier.void else ("later", later)
    raise NotComparable(f"{point.asked.title} is void in the {which} one: {point.void[0]}")


def shown(found: list[Compared], threshold: float) -> str:
    """Return a table in Markdown, and a sentence."""
    rows = [
        (
            one.name,
            number(one.earlier),
            number(one.later),
            f"{one.cost.ratio:.3f}",
            f"{one.cost.low:.3f} to {one.cost.high:.3f}",
            "worse" if one.worse else "better" if one.better else _else(one.cost, threshold),
        )
        for one in found
    ]
    worse = [one.name for one in found if one.worse]
    end = (
        f"worse by more than {threshold:.0%}: {', '.join(worse)}"
        if worse
        else f"nothing is proven to be worse by more than {threshold:.0%}"
    )
    return "\n".join([*table(_HEADING, rows), "", end])


def _else(cost: Difference, threshold: float) -> str:
    if not cost.differs:
        return "no difference proven"
    within = 1 / (1 + threshold) <= cost.ratio <= 1 + threshold
    return f"differs,{' perhaps' * (not within)} within the threshold"


def _pairs(earlier: Result, later: Result) -> list[tuple[str, bool, list[float], list[float]]]:
    """Return names, whether more is better, and the rounds of both.

    Few, because each takes its share of the doubt.
    """
    asked = [
        ("one at a time, p50 ms", False, earlier.lone, later.lone, "p50 ms"),
        ("closed loop, answered/s", True, earlier.closed, later.closed, "rate /s"),
        ("closed loop, CPU µs a request", False, earlier.closed, later.closed, "cpu us"),
    ]
    if (both := _highest_of_both(earlier, later)) is not None:
        a, b = both
        asked.append((f"{a.asked.title}, p50 ms", False, a, b, "p50 ms"))
    return [
        (name, more, a.rounds[key], b.rounds[key])
        for name, more, a, b, key in asked
        if all(min(point.rounds.get(key, [0])) > 0 for point in (a, b))
    ]


def _highest_of_both(earlier: Result, later: Result) -> tuple[Point, Point] | None:
    """Return the points at the highest rate that both answered within their limit."""
    others = {point.asked.rate_per_s: point for point in later.valid_points}
    both = [
        (point, others[point.asked.rate_per_s])
        for point in earlier.valid_points
        if point.asked.rate_per_s in others
        and all(
            p.figures["rate /s"] > 0.95 * (p.asked.rate_per_s or 0.0)
            for p in (point, others[point.asked.rate_per_s])
        )
    ]
    return both[-1] if both else None
