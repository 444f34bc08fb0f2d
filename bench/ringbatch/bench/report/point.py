"""Verdict on the rounds of one kind of run, and why they may be void. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ringbatch.bench.load.outcome import BROKEN, GRPC, UNANSWERED, WRONG, Outcome, words_of
from ringbatch.bench.load.parts import Parts
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.metrics import Observed
from ringbatch.bench.statistics.samples import (
    SHARES,
    curve,
    name_of,
    percentiles_ms,
    samples_needed,
)
from ringbatch.bench.statistics.steadiness import WINDOWS, Steadiness, steadiness

ANSWERED: Final = "status 200"
"""Words for a request that has its answer."""
_LOST_MAX: Final = 0.01
"""Share of requests without any answer from the server, above which a run says nothing."""
_BUSY_MAX: Final = 80.0
"""Share of a CPU, in %, above which a generator may read parts late."""
NOTICED_SHARE: Final = 0.05
"""Share of all CPUs that other processes take in a run, above which the run is marked."""
_GRPC_REFUSALS: Final = (3, 5, 6, 7, 9, 11, 12, 16)
"""INVALID_ARGUMENT to UNAUTHENTICATED: what is wrong with the request, and stays so."""


@dataclass(frozen=True)
class Asked:
    """Kind of run: its load.

    Attributes:
        title: its name for people.
        rate_per_s: wanted rate; None in a closed loop.
        connections: connections of a closed loop; the most of an open one.
    """

    title: str
    rate_per_s: float | None
    connections: int


@dataclass(frozen=True)
class Point:
    """All rounds of one kind of run together.

    Attributes:
        asked: the kind of run.
        void: why it says nothing, in words; where there are any, there is no figure.
        notes: what has to be known beside its figures.
        figures: by name, whose last word is the unit.
        rounds: of figures that are compared, one list for each, by round.
        curve: shares and milliseconds of the distribution of times.
        statuses: how many requests ended in which way, in words.
        observed: what the engine said of itself; None where it was not asked.
    """

    asked: Asked
    void: tuple[str, ...]
    notes: tuple[str, ...]
    figures: dict[str, float]
    rounds: dict[str, list[float]]
    curve: tuple[tuple[float, float], ...]
    statuses: dict[str, int]
    observed: Observed | None

    @property
    def lost(self) -> int:
        """The number of requests without an answer of status 200."""
        return sum(count for words, count in self.statuses.items() if words != ANSWERED)

    def holds(self, slo: Slo) -> bool | None:
        """Return whether it is within the limits and nearly all requests have an answer.

        None if the point is void or has too few samples.
        """
        within = None if self.void else slo.holds(self.figures)
        if within is None:
            return None
        return within and self.lost <= sum(self.statuses.values()) * _LOST_MAX

    def as_object(self) -> dict[str, Any]:
        """Return the point as an object for JSON."""
        return {
            "title": self.asked.title,
            "rate_per_s": self.asked.rate_per_s,
            "connections": self.asked.connections,
            "void": list(self.void),
            "notes": list(self.notes),
            "figures": self.figures,
            "rounds": self.rounds,
            "curve": [list(pair) for pair in self.curve],
            "statuses": self.statuses,
            "engine": None if self.observed is None else self.observed.as_object(),
        }

    @classmethod
    def from_object(cls, found: dict[str, Any]) -> "Point":
        """Return the point of `as_object`."""
        engine = found["engine"]
        return cls(
            Asked(found["title"], found["rate_per_s"], found["connections"]),
            tuple(found["void"]),
            tuple(found["notes"]),
            found["figures"],
            found["rounds"],
            tuple((share, value) for share, value in found["curve"]),
            found["statuses"],
            None if engine is None else Observed(**engine),
        )


def judged(
    asked: Asked,
    rounds: Sequence[Outcome],
    observed: Sequence[Observed | None],
    *,
    slo: Slo,
    lag_max_ms: float,
    others: Sequence[float] = (),
) -> Point:
    """Return the verdict on the rounds of one kind of run.

    Args:
        asked: kind and rate of the run.
        rounds: the outcome of each.
        observed: the engine's metrics in each.
        slo: within which an answer is good.
        lag_max_ms: of the generator's own lag, its p99, above which a run is void.
        others: the share of all CPUs that other processes took in each round, if known.
    """
    statuses: dict[int, int] = {}
    for outcome in rounds:
        for status, count in outcome.counts().items():
            statuses[status] = statuses.get(status, 0) + count
    named = {words_of(status): count for status, count in sorted(statuses.items())}
    if void := _void(asked, rounds, statuses, lag_max_ms):
        return Point(asked, tuple(void), (), {}, {}, (), named, None)
    times = sum((o.times() for o in rounds[1:]), start=rounds[0].times())
    rates = [o.rate_per_s() for o in rounds]
    medians = [percentiles_ms(o.times()).get("p50") for o in rounds]
    figures = {
        "rate /s": _mean(rates),
        "goodput /s": _mean([slo.goodput_per_s(o) for o in rounds]),
        "lag p99 ms": max(o.lag_ms(0.99) for o in rounds),
        **{f"{name} ms": value for name, value in percentiles_ms(times).items()},
    }
    in_parts = [outcome.parts for outcome in rounds if outcome.parts is not None]
    if in_parts:
        figures |= _of_parts(rounds, in_parts)
    most = max(others, default=0.0)
    if others:
        figures["others %"] = most * 100
    by_round = {"rate /s": rates}
    if all(median is not None for median in medians):
        by_round["p50 ms"] = [median for median in medians if median is not None]
    seen = [one for one in observed if one is not None]
    together = added(seen) if len(seen) == len(rounds) else None
    if together is not None:
        figures["cpu us"] = sum(together.cpu_us.values())
        figures["batch size"] = together.instances / max(together.batches, 1)
        by_round["cpu us"] = [sum(one.cpu_us.values()) for one in seen]
    notes = [*_notes(rounds, statuses, times.total), *_notes_of_parts(figures)]
    if most > NOTICED_SHARE:
        notes.append(f"others took up to {most:.0%} of the CPUs in a run")
    return Point(asked, (), tuple(notes), figures, by_round, tuple(curve(times)), named, together)


def _of_parts(rounds: Sequence[Outcome], in_parts: Sequence[Parts]) -> dict[str, float]:
    """Return the figures of answers in parts; the distributions are over parts of all rounds."""
    first = sum((o.first_parts() for o in rounds[1:]), start=rounds[0].first_parts())
    gaps = sum((o.gaps() for o in rounds[1:]), start=rounds[0].gaps())
    seconds = sum(outcome.seconds for outcome in rounds)
    lost = sum(int((~outcome.answered).sum()) for outcome in rounds)
    cut_off = sum(outcome.cut_off() for outcome in rounds)
    return {
        "parts /s": sum(one.in_run for one in in_parts) / seconds,
        **{f"first {name} ms": value for name, value in percentiles_ms(first).items()},
        **{f"gap {name} ms": value for name, value in percentiles_ms(gaps).items()},
        "cut off answers": cut_off,
        "failed answers": lost - cut_off,
        "short answers": sum(one.short for one in in_parts),
        "generator busy %": max(one.busy for one in in_parts) * 100,
    }


def _notes_of_parts(figures: Mapping[str, float]) -> list[str]:
    notes = []
    if cut_off := figures.get("cut off answers"):
        notes.append(f"{cut_off:.0f} answers were cut off behind a part")
    if short := figures.get("short answers"):
        notes.append(f"{short:.0f} answers ended with fewer parts than the first to their request")
    if (busy := figures.get("generator busy %", 0.0)) > _BUSY_MAX:
        notes.append(
            f"a generator used {busy:.0f} % of a CPU, so gaps may be its own: use more --generators"
        )
    return notes


def unsteady(rounds: Sequence[Outcome]) -> list[Steadiness]:
    """Return the steadiness of each round that was not steady."""
    found = [steadiness(outcome.windows(WINDOWS)) for outcome in rounds]
    return [one for one in found if one.steady is False]


def added(seen: Sequence[Observed]) -> Observed:
    """Return several looks as one: counts add up, times are means."""

    def means(parts: Sequence[dict[str, float]]) -> dict[str, float]:
        keys = dict.fromkeys(key for part in parts for key in part)
        return {key: _mean([part.get(key, 0.0) for part in parts]) for key in keys}

    reasons: dict[str, int] = {}
    for one in seen:
        for reason, count in one.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return Observed(
        sum(one.batches for one in seen),
        sum(one.instances for one in seen),
        reasons,
        means([one.cpu_us for one in seen]),
        means([one.stages_ms for one in seen]),
    )


def _void(
    asked: Asked, rounds: Sequence[Outcome], statuses: dict[int, int], lag_max_ms: float
) -> list[str]:
    total = sum(statuses.values())
    if not total:
        return ["no request was sent"]
    reasons = []
    lag_ms = max(outcome.lag_ms(0.99) for outcome in rounds)
    if asked.rate_per_s is not None and lag_ms > lag_max_ms:
        reasons.append(
            f"the generator was late, its p99 {lag_ms:.3g} ms and above {lag_max_ms:g} ms: "
            "it cannot make this rate here"
        )
    if (broken := statuses.get(BROKEN, 0)) > _LOST_MAX * total:
        problems = "; ".join(sorted({words for outcome in rounds for words in outcome.problems}))
        reasons.append(f"{broken} of {total} connections broke: {problems}")
    if wrong := statuses.get(WRONG, 0):
        reasons.append(f"{wrong} of {total} answers were not the right one")
    refused = {s: n for s, n in statuses.items() if _is_refusal(s)}
    if refused:
        words = ", ".join(f"{count} of {total} with {words_of(s)}" for s, count in refused.items())
        reasons.append(f"the server refused requests: {words}")
    if not any(outcome.answered.any() for outcome in rounds):
        ends = ", ".join(f"{words_of(s)} ({count})" for s, count in statuses.items())
        reasons.append(f"no request was answered with status 200: {ends}")
    return reasons


def _is_refusal(status: int) -> bool:
    over_http = 200 < status < 500 and status not in (408, 429)
    return over_http or status - GRPC in _GRPC_REFUSALS


def _notes(rounds: Sequence[Outcome], statuses: dict[int, int], samples: int) -> list[str]:
    notes = []
    if found := unsteady(rounds):
        notes.append(f"no steady state in {len(found)} of {len(rounds)} rounds: {found[0].why}")
    if left := statuses.get(UNANSWERED, 0):
        notes.append(f"{left} requests had no answer when a run was over; they count as that long")
    if held := sum(outcome.held_back for outcome in rounds):
        most = max(outcome.connections for outcome in rounds)
        notes.append(f"{held} requests waited for one of {most} connections; their time counts")
    missing = [name_of(share) for share in SHARES[:3] if samples < samples_needed(share)]
    if missing:
        notes.append(f"{samples} samples are too few for {' and '.join(missing)}")
    return notes


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
