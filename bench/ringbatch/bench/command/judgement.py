"""LoadGen as a judge of the server that was measured: which runs it is told to make."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ringbatch.bench.command.settings import JUDGE_STEPS, OFFLINE_TRIES, Settings
from ringbatch.bench.command.subject import Subject
from ringbatch.bench.load.arrivals import Kind
from ringbatch.bench.loadgen.judge import Judge, is_installed
from ringbatch.bench.loadgen.judgement import Compared, Judgement, Run, judged
from ringbatch.bench.loadgen.logs import BadLog
from ringbatch.bench.loadgen.plan import (
    LONGEST,
    MIN_QUERIES,
    NOT_A_RESULT,
    PERCENTILE,
    Plan,
    Scenario,
    accuracy_of,
    planned,
)
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.words import number
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.statistics.knee import Knee, Trial, search
from ringbatch.shm.errors import how_to_install

Say = Callable[[str], None]
_FIRST: Final = 0.8
"""Share of what a closed loop answers, at which the search begins where there is no knee."""
_MORE: Final = 1.2
"""Times the rate that was seen, which LoadGen is told to expect of Offline, so that it asks for
more than its shortest duration."""


def expect_judge(settings: Settings) -> None:
    """Find out before anything is started that LoadGen cannot judge.

    Raises:
        CannotMeasure: it is not installed, or would ask in another way than was asked for.
    """
    if not settings.loadgen:
        return
    if settings.arrivals is not Kind.POISSON:
        raise CannotMeasure(
            f"--loadgen: LoadGen's queries come as Poisson's, and {settings.arrivals} arrivals "
            "could not be held against them"
        )
    if not is_installed():
        raise CannotMeasure(
            "--loadgen needs the package mlcommons-loadgen, which is not installed; "
            f"{how_to_install('bench-loadgen')}"
        )


def judge(
    subject: Subject, settings: Settings, result: Result, folder: Path, say: Say
) -> Judgement:
    """Let LoadGen judge the server that was measured.

    Args:
        subject: the model.
        settings: what was asked for.
        result: what was found before.
        folder: for LoadGen's logs.
        say: takes a line of progress.

    Raises:
        CannotMeasure: the server stops answering, or LoadGen's logs cannot be read.
        GeneratorDied: its process has ended.
    """
    say("LoadGen judges the same model")
    with subject.judge() as process:
        court = _Court(subject, settings, process, folder, say)
        closed_per_s = result.closed.figures.get("rate /s", 0.0)
        first_per_s = result.knee_per_s or _FIRST * max(_rates(result))
        knee = court.find_rate(first_per_s)
        rate = knee.rate_per_s or first_per_s / 2
        offline = court.offline(max(closed_per_s, rate))
        answers = [
            court.compare(Scenario.SERVER, rate),
            court.compare(Scenario.OFFLINE, max(closed_per_s, rate)),
        ]
    return Judgement(
        version=court.version,
        settings=_told(settings),
        runs=(*court.runs, offline),
        compared=tuple(answers),
        server_per_s=knee.rate_per_s,
        missed_per_s=knee.missed_per_s,
        why=knee.why,
    )


def trial_of(run: Run) -> Trial:
    """Return LoadGen's verdict as a trial of the search."""
    if run.void:
        return Trial.VOID
    return Trial.HELD if run.valid else Trial.MISSED


def words_of_run(run: Run) -> str:
    """Return a run in words, for the progress log."""
    parts = [run.verdict, *run.why]
    if "p99 ms" in run.figures and run.scenario is Scenario.SERVER:
        parts.insert(1, f"p99 {run.figures['p99 ms']:.3g} ms")
        parts.append(f"sender {run.figures['lag p99 ms']:.2g} ms late")
    if run.scenario is Scenario.OFFLINE and "rate /s" in run.figures:
        parts.insert(1, f"{number(run.figures['rate /s'])} answered/s")
    return ", ".join(parts)


def _rates(result: Result) -> list[float]:
    """Return the answered rates of all runs that are not void."""
    points = [result.lone, result.closed, *result.points]
    return [point.figures["rate /s"] for point in points if not point.void]


def _told(settings: Settings) -> dict[str, Any]:
    """Return the settings common to all runs, by LoadGen's names if it has them."""
    return {
        "min_duration_ms": round(settings.loadgen_s * 1e3),
        "max_duration_ms": round(settings.loadgen_s * 1e3) * LONGEST,
        "min_query_count": MIN_QUERIES,
        "server_target_latency_ms": settings.slo_ms,
        "server_target_latency_percentile": PERCENTILE,
        "server_coalesce_queries": True,
        "connections": settings.connections_max,
        "offline_connections": settings.connections,
    }


class _Court:
    """The runs of one judgement.

    Attributes:
        version: of LoadGen.
        runs: of the search.
    """

    def __init__(
        self, subject: Subject, settings: Settings, process: Judge, folder: Path, say: Say
    ) -> None:
        self._subject, self._settings, self._process = subject, settings, process
        self._folder, self._say = folder, say
        self._count = 0
        self.version = ""
        self.runs: list[Run] = []

    def find_rate(self, first_per_s: float) -> Knee:
        """Return the highest rate that is VALID in the scenario Server."""
        rates = search(first_per_s, JUDGE_STEPS)
        rate = next(rates)
        while True:
            run = self._run(self._plan(Scenario.SERVER, rate))
            self.runs.append(run)
            self._say(f"  LoadGen, {rate:,.0f} queries/s: {words_of_run(run)}")
            try:
                rate = rates.send(trial_of(run))
            except StopIteration as end:
                knee: Knee = end.value
                return knee

    def offline(self, expected_per_s: float) -> Run:
        """All queries at once, so many that they take long enough."""
        for _ in range(OFFLINE_TRIES):
            plan = self._plan(Scenario.OFFLINE, expected_per_s * _MORE)
            run = self._run(plan)
            self._say(f"  LoadGen, all at once: {words_of_run(run)}")
            if run.valid or run.void:
                break
            expected_per_s = max(run.figures.get("rate /s", 0.0), expected_per_s)
        return run

    def compare(self, scenario: Scenario, rate_per_s: float) -> Compared:
        """Hold the answers that LoadGen logs against those that are expected."""
        plan = accuracy_of(self._plan(scenario, rate_per_s))
        folder = self._next_folder(plan)
        try:
            self._process.run(plan, folder, self._connections(plan), self._patience_s(plan))
            found = self._process.compared(plan, folder, self._subject.answers)
        except BadLog as error:
            raise CannotMeasure(str(error)) from None
        self._subject.settle()
        self._say(
            f"  LoadGen, {scenario}, accuracy mode: {found.answers} answers, {found.wrong} wrong, "
            f"{found.missing} missing"
        )
        return found

    def _run(self, plan: Plan) -> Run:
        try:
            said, sent = self._process.run(
                plan, self._next_folder(plan), self._connections(plan), self._patience_s(plan)
            )
        except BadLog as error:
            raise CannotMeasure(str(error)) from None
        self._subject.settle()
        self.version = said.version
        limit = self._settings.lag_limit_ms
        return judged(plan.scenario, plan.rate_per_s, said, sent, limit)

    def _plan(self, scenario: Scenario, rate_per_s: float) -> Plan:
        return planned(
            scenario,
            rate_per_s,
            seconds=self._settings.loadgen_s,
            limit_ms=self._settings.slo_ms,
            requests=len(self._subject.bodies),
            connections=self._settings.connections_max,
        )

    def _connections(self, plan: Plan) -> int:
        """All at once are sent as a closed loop does, which many servers refuse else."""
        is_offline = plan.scenario is Scenario.OFFLINE
        return self._settings.connections if is_offline else self._settings.connections_max

    def _patience_s(self, plan: Plan) -> float:
        if plan.scenario is Scenario.SERVER:
            return self._settings.grace_s
        return plan.max_duration_ms / 1e3 + self._settings.grace_s

    def _next_folder(self, plan: Plan) -> Path:
        self._count += 1
        name = f"{self._count:02}-{plan.scenario}-{plan.mode}-{plan.rate_per_s:.0f}"
        return self._folder / name.lower()


def notice() -> str:
    """Return the note that is put beside LoadGen's logs, whose own heads claim more."""
    return f"{NOT_A_RESULT}\n"
