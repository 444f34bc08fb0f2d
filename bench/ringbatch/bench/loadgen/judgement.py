"""Verdicts of a judge, as values. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ringbatch.bench.load.outcome import WRONG, words_of
from ringbatch.bench.loadgen.logs import Said
from ringbatch.bench.loadgen.plan import NOT_A_RESULT, Scenario

_ANSWERED: Final = 200


@dataclass(frozen=True)
class Sent:
    """Run as the process that sends LoadGen's queries saw it.

    Attributes:
        statuses: how many queries ended with each status, as in an `Outcome`.
        problems: faults of connections, in words, and how often each came.
        lag_p99_ms: from LoadGen's call to the sending of the query, p99.
        took_mean_ms: from LoadGen's call to the answer, mean.
        held_back: queries that waited for a connection; that is no lag.
    """

    statuses: dict[int, int]
    problems: dict[str, int]
    lag_p99_ms: float
    took_mean_ms: float
    held_back: int

    @property
    def lost(self) -> int:
        """Queries without the right answer."""
        return sum(count for status, count in self.statuses.items() if status != _ANSWERED)

    @property
    def ends(self) -> dict[str, int]:
        """Number of queries by their end, in words."""
        return {words_of(status): count for status, count in sorted(self.statuses.items())}


@dataclass(frozen=True)
class Run:
    """One run that looked at times.

    Attributes:
        scenario: how queries came.
        rate_per_s: that was asked for; of Offline, expected.
        verdict: VALID or INVALID, which is LoadGen's word, or void.
        why: in words; of VALID, nothing.
        figures: by name, whose last word is the unit; none where it is void.
        statuses: how many queries ended in which way, in words.
    """

    scenario: Scenario
    rate_per_s: float
    verdict: str
    why: tuple[str, ...]
    figures: dict[str, float]
    statuses: dict[str, int]

    @property
    def valid(self) -> bool:
        """True if LoadGen called it VALID and no observation speaks against that."""
        return self.verdict == "VALID"

    @property
    def void(self) -> bool:
        """True if it says nothing about the server."""
        return self.verdict == "void"


@dataclass(frozen=True)
class Compared:
    """Answers in LoadGen's log, held against those that were expected.

    Attributes:
        scenario: how queries came.
        answers: that were logged.
        wrong: how many of them are not the right ones; those of refused queries are among them.
        missing: samples without any.
    """

    scenario: Scenario
    answers: int
    wrong: int
    missing: int

    @property
    def right(self) -> bool:
        """True if every sample has the right answer."""
        return self.answers > 0 and not self.wrong and not self.missing


@dataclass(frozen=True)
class Judgement:
    """All that LoadGen found.

    Attributes:
        version: of LoadGen.
        settings: that every run had.
        runs: in their order.
        compared: of each scenario, the answers.
        server_per_s: the highest rate that was VALID; 0 where none was.
        missed_per_s: the lowest above it that was not; None where none was found.
        why: what has to be known of that rate, in words.
    """

    version: str
    settings: dict[str, Any]
    runs: tuple[Run, ...]
    compared: tuple[Compared, ...]
    server_per_s: float
    missed_per_s: float | None
    why: str
    note: str = field(default=NOT_A_RESULT)

    @property
    def offline_per_s(self) -> float | None:
        """Rate of the scenario Offline; None if it was not VALID."""
        found = [run for run in self.runs if run.scenario is Scenario.OFFLINE and run.valid]
        return found[-1].figures["rate /s"] if found else None

    @property
    def failures(self) -> list[str]:
        """Why this judgement is a bad one, in words."""
        none = [] if self.server_per_s else ["no rate was VALID in the scenario Server"]
        return none + [
            f"{one.scenario}: of {one.answers} answers {one.wrong} were not the right one, "
            f"and {one.missing} are missing"
            for one in self.compared
            if not one.right
        ]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_object(cls, found: dict[str, Any]) -> "Judgement":
        """Back from `as_object`."""
        runs = [
            Run(**{**one, "scenario": Scenario(one["scenario"]), "why": tuple(one["why"])})
            for one in found["runs"]
        ]
        answers = [
            Compared(**{**one, "scenario": Scenario(one["scenario"])}) for one in found["compared"]
        ]
        return cls(**{**found, "runs": tuple(runs), "compared": tuple(answers)})


def judged(scenario: Scenario, rate_per_s: float, said: Said, sent: Sent, lag_max_ms: float) -> Run:
    """Return the verdict on one run.

    Args:
        scenario: how queries came.
        rate_per_s: the rate of queries.
        said: the figures of LoadGen.
        sent: the figures of the sender.
        lag_max_ms: of the sender's own lag, its p99, or the mean time by which LoadGen itself came
            late to a query. Above it an INVALID run is void, as it may be the sender's fault; a
            VALID one was good in spite of it, because LoadGen counts that time too.
    """
    late_ms = 0.0
    if not sent.lost:
        # LoadGen counts from when a query was due, the sender from LoadGen's call.
        late_ms = max(said.figures.get("mean ms", 0.0) - sent.took_mean_ms, 0.0)
    lost = []
    if sent.lost:
        ends = ", ".join(f"{count} {words}" for words, count in sent.ends.items())
        lost = [f"{sent.lost} queries without the right answer ({ends})", *sent.problems]
    void = list(lost) if _is_void(scenario, sent) else []
    is_late = scenario is Scenario.SERVER and max(sent.lag_p99_ms, late_ms) > lag_max_ms
    if is_late and not said.valid:
        void.append(
            f"the sender was late, its p99 {sent.lag_p99_ms:.3g} ms and LoadGen's mean "
            f"{late_ms:.3g} ms, one above {lag_max_ms:g} ms: it cannot make this rate here"
        )
    if void:
        return Run(scenario, rate_per_s, "void", tuple(void), {}, sent.ends)
    figures = {**said.figures, "lag p99 ms": sent.lag_p99_ms, "late mean ms": late_ms}
    verdict = "VALID" if said.valid else "INVALID"
    return Run(scenario, rate_per_s, verdict, (*said.why, *lost), figures, sent.ends)


def _is_void(scenario: Scenario, sent: Sent) -> bool:
    """Return whether unanswered queries make a run void.

    In the scenario Server they count as late.
    """
    return bool(sent.statuses.get(WRONG)) or (scenario is Scenario.OFFLINE and sent.lost > 0)
