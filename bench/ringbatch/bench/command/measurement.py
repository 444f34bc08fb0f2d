"""The measurement: warm-up, the knee, then every load in turn, round after round.

Rounds are interleaved, A B C A B C: the host's speed drifts over minutes, and so it drifts for all.
Each round has an engine of its own: where its processes run and its memory lies is settled at its
start, and would else differ between two results and not within one.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from ringbatch.bench.command.settings import KNEE_STEPS, Settings, rates_of
from ringbatch.bench.command.subject import Subject
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import UNANSWERED, Outcome
from ringbatch.bench.report.point import ANSWERED, NOTICED_SHARE, Asked, Point, judged
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.machine import others_share
from ringbatch.bench.served.metrics import Observed, between
from ringbatch.bench.statistics.knee import Knee, Trial, search

Progress = Callable[[str], None]
Subjects = Callable[[], AbstractContextManager[Subject]]
_KNEE_FIRST: Final = 0.8
"""Share of what the server answers at most, at which the search for the knee begins."""
_PATIENCE: Final = 4
"""Times the longest lone answer in parts, for which answers are waited for in any case."""


@dataclass(frozen=True)
class _Run:
    asked: Asked
    arrivals: Arrivals


def measure(
    subjects: Subjects,
    settings: Settings,
    machine: dict[str, Any],
    warnings: Sequence[str],
    progress: Progress,
) -> Result:
    """Measure a model.

    Args:
        subjects: the model, whenever it is entered; of an engine that was started for it, or runs.
        settings: options of the measurement.
        machine: that it runs on.
        warnings: what makes it doubtful.
        progress: takes a line of progress.

    Raises:
        CannotMeasure: the server stops answering, or no figure can be had.
        GeneratorDied: a process that generates load has ended.
    """
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    measured = _Measurement(subjects, settings, progress)
    began = time.monotonic()
    stopped = ""
    try:
        subject, knee = _asked(measured, settings, progress, began)
    except KeyboardInterrupt:
        if not measured.has_figures:
            raise
        subject, knee = measured.subject, measured.knee
        stopped = f"It was stopped in round {measured.rounds_begun} of {settings.rounds}."
        progress(
            f"stopped in round {measured.rounds_begun} of {settings.rounds}; what there is counts"
        )
    lone, closed, *others = points = measured.points()
    if all(point.void for point in points):
        raise CannotMeasure("there is no figure: " + "; ".join([*lone.void, *closed.void]))
    knee_rates = {"rate_per_s": knee.rate_per_s, "missed_per_s": knee.missed_per_s} if knee else {}
    return Result(
        model=subject.model,
        started_utc=started_utc,
        settings=_settings_used(subject, settings) | {"rounds": measured.rounds_begun},
        machine=machine,
        lone=lone,
        closed=closed,
        points=tuple(others),
        knee={**knee_rates, "why": knee.why} if knee else {},
        warnings=(*warnings, *filter(None, [stopped])),
        stopped=bool(stopped),
        others_share=measured.others_share,
    )


def _asked(
    measured: "_Measurement", settings: Settings, progress: Progress, began: float
) -> tuple[Subject, Knee | None]:
    """Measure everything; return the model, and the knee if the settings ask for it."""
    with measured.engine() as subject:
        usual_s, most_s = settings.duration_s(time.monotonic() - began)
        progress(f"this takes about {usual_s:.0f} s, and {most_s:.0f} s at most")
        progress(f"measuring {subject.model} over {subject.where}")
        if subject.served.control is None:
            progress("no batches and no CPU times: say --control-url, where its metrics are")
        most_per_s = measured.warm_up(settings.warm_up_s)
        progress(
            f"closed loop, {settings.connections} connections: about {most_per_s:,.0f} requests/s"
        )
        if settings.arrivals is not Kind.REPLAY:
            measured.knee = measured.find_knee(most_per_s)
            progress(f"knee: {knee_words(measured.knee, settings.slo)}")
        runs = _runs(settings, measured.knee, most_per_s)
        if not settings.engine_each_round:
            measured.rounds(runs)
    if settings.engine_each_round:
        measured.rounds(runs)
    return subject, measured.knee


def knee_words(knee: Knee, slo: Slo) -> str:
    """Return the knee, in words."""
    why = f" ({knee.why})" if knee.why else ""
    if not knee.rate_per_s:
        return f"no rate with {slo.words}{why}"
    return f"{knee.rate_per_s:,.0f} requests/s with {slo.words}{why}"


def trial_of(point: Point, slo: Slo) -> tuple[Trial, str]:
    """Return whether a rate held the limit, and the same in words."""
    if point.void:
        return Trial.VOID, f"void: {point.void[0]}"
    held = point.holds(slo)
    if held is None:
        return Trial.VOID, "void: too few samples for a p99; make runs longer with --duration-s"
    total = sum(point.statuses.values())
    others = [f"{n} {words}" for words, n in point.statuses.items() if words != ANSWERED]
    refused = f", {point.lost} of {total} not answered ({', '.join(others)})" if others else ""
    lag = f"generator {point.figures['lag p99 ms']:.2g} ms late"
    words = f"{slo.measured_words(point.figures)}{refused}, {lag}"
    return Trial.HELD if held else Trial.MISSED, words


def _runs(settings: Settings, knee: Knee | None, most_per_s: float) -> list[_Run]:
    count, limit = settings.connections, settings.connections_max
    lone_s = settings.run_s(most_per_s / count, settings.rounds)
    closed_s = settings.run_s(most_per_s, settings.rounds)
    closed = Asked(f"closed loop, {count} connections", None, count)
    runs = [
        _Run(Asked("one at a time", None, 1), Arrivals(Kind.CLOSED, lone_s)),
        _Run(closed, Arrivals(Kind.CLOSED, closed_s)),
    ]
    if settings.arrivals is Kind.REPLAY:
        seconds, trace = settings.replay_s, tuple(settings.trace)
        asked = Asked("replayed arrivals", len(trace) / seconds, limit)
        return [*runs, _Run(asked, Arrivals(Kind.REPLAY, seconds, recorded_ns=trace))]
    for rate in rates_of(settings, knee.rate_per_s if knee else 0.0, most_per_s):
        asked = Asked(f"{rate:,.6g} requests/s", rate, limit)
        seconds = settings.run_s(rate, settings.rounds)
        runs.append(_Run(asked, Arrivals(settings.arrivals, seconds, rate)))
    return runs


def _settings_used(subject: Subject, settings: Settings) -> dict[str, Any]:
    """Return the settings that a reader has to know."""
    return {
        "path": subject.path,
        "heads": "own" if subject.own_heads else "same",
        "protocol": str(subject.protocol),
        "requests": "made up from the signature" if subject.made_up else "from a file",
        "request_bytes": max(map(len, subject.bodies)),
        "answers": "in events" if settings.stream else "whole",
        **settings.slo.as_settings(),
        "arrivals": str(settings.arrivals),
        "seconds": settings.seconds,
        "rounds": settings.rounds,
        "engines": settings.engines,
        "connections": settings.connections,
        "generators": settings.generators,
        "answers_compared": settings.check,
        "lag_max_ms": settings.lag_limit_ms,
        "seed": settings.seed,
    }


class _Measurement:
    """Series of runs against one model, on one engine after another.

    Attributes:
        subject: the model of the last engine.
        knee: None until the search has found it.
        rounds_begun: the number of rounds begun.
        others_share: of all CPUs, taken by others in the run with the most.
    """

    subject: Subject
    _fleet: Fleet

    def __init__(self, subjects: Subjects, settings: Settings, progress: Progress) -> None:
        self.knee: Knee | None = None
        self.rounds_begun = 0
        self._subjects, self._settings, self._progress = subjects, settings, progress
        self._seed = settings.seed
        self._runs: Sequence[_Run] = ()
        self.others_share = 0.0
        self._outcomes: list[list[Outcome]] = []
        self._others: list[list[float]] = []
        self._observed: list[list[Observed | None]] = []

    @property
    def has_figures(self) -> bool:
        """True if the first two kinds of run, which every result has, have run once."""
        return len(self._outcomes) > 1 and all(self._outcomes[:2])

    @property
    def _grace_s(self) -> float:
        """Seconds to wait for answers after the last request."""
        return self._settings.grace_s + _PATIENCE * self.subject.stream_s

    @contextmanager
    def engine(self) -> Iterator[Subject]:
        """Start an engine that answers, with generators that ask it."""
        settings = self._settings
        with (
            self._subjects() as self.subject,
            self.subject.fleet(settings.generators, check=settings.check) as self._fleet,
        ):
            yield self.subject

    def warm_up(self, seconds: float) -> float:
        """Return about the most requests/s that the server answers."""
        settings = self._settings
        arrivals = Arrivals(Kind.CLOSED, seconds)
        outcome = self._fleet.run(arrivals, settings.connections, self._grace_s)
        asked = Asked("warm-up", None, settings.connections)
        point = self._judged(asked, [outcome], [None])
        if point.void or not point.figures["rate /s"]:
            why = "; ".join(point.void) or f"no request was answered in {seconds:g} s"
            if not point.void or UNANSWERED in outcome.counts():
                why += "; a slow model needs longer runs, raise --duration-s"
            raise CannotMeasure(f"there is no figure: {why}")
        self.subject.settle()
        return point.figures["rate /s"]

    def find_knee(self, most_per_s: float) -> Knee:
        """Return the highest rate with a p99 within the limit."""
        settings = self._settings
        rates = search(most_per_s * _KNEE_FIRST, KNEE_STEPS)
        rate = next(rates)
        while True:
            seconds = settings.knee_s(rate)
            arrivals = Arrivals(settings.arrivals, seconds, rate, self._next_seed())
            outcome, _, others = self._run(arrivals, settings.connections_max)
            asked = Asked("knee", rate, settings.connections_max)
            point = self._judged(asked, [outcome], [None], [others])
            found, words = trial_of(point, settings.slo)
            beside = f", others took {others:.0%} of the CPUs" if others > NOTICED_SHARE else ""
            self._progress(f"  {rate:,.0f} requests/s: {words}{beside}")
            try:
                rate = rates.send(found)
            except StopIteration as end:
                knee: Knee = end.value
                return knee

    def rounds(self, runs: Sequence[_Run]) -> None:
        """Make every run in every round."""
        self._runs = runs
        self._outcomes = [[] for _ in runs]
        self._observed = [[] for _ in runs]
        self._others = [[] for _ in runs]
        for turn in range(self._settings.rounds):
            self.rounds_begun = turn + 1
            self._progress(f"round {turn + 1} of {self._settings.rounds}, {len(runs)} runs each")
            with self._engine_of_round():
                for number, run in enumerate(runs):
                    arrivals = replace(run.arrivals, seed=self._next_seed())
                    outcome, seen, others = self._run(arrivals, run.asked.connections)
                    self._outcomes[number].append(outcome)
                    self._observed[number].append(seen)
                    self._others[number].append(others)

    def points(self) -> list[Point]:
        """Return the results of the runs so far."""
        points = [
            self._judged(
                run.asked, self._outcomes[number], self._observed[number], self._others[number]
            )
            for number, run in enumerate(self._runs)
            if self._outcomes[number]
        ]
        for point in points:
            for why in point.void:
                self._progress(f"  {point.asked.title}: void: {why}")
        return points

    @contextmanager
    def _engine_of_round(self) -> Iterator[None]:
        if not self._settings.engine_each_round:
            yield
            return
        with self.engine():
            self.warm_up(self._settings.round_warm_up_s)
            yield

    def _run(self, arrivals: Arrivals, connections: int) -> tuple[Outcome, Observed | None, float]:
        """Make a run; return also the share of all CPUs that others took meanwhile."""
        before, used_before = self.subject.metrics(), self.subject.cpu_times()
        outcome = self._fleet.run(arrivals, connections, self._grace_s)
        others = others_share(used_before, self.subject.cpu_times(), os.cpu_count() or 1)
        self.others_share = max(self.others_share, others)
        self.subject.settle()
        after = self.subject.metrics()
        if before is None or after is None:
            return outcome, None, others
        return outcome, between(before, after, self.subject.model), others

    def _judged(
        self,
        asked: Asked,
        rounds: Sequence[Outcome],
        observed: Sequence[Observed | None],
        others: Sequence[float] = (),
    ) -> Point:
        slo, lag_max_ms = self._settings.slo, self._settings.lag_limit_ms
        return judged(asked, rounds, observed, slo=slo, lag_max_ms=lag_max_ms, others=others)

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed
