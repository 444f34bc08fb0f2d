"""Engines of a measurement, and the runs that each of them gets; the engines are made up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from ringbatch.bench.command.measurement import measure
from ringbatch.bench.command.settings import WARM_UP_S, Protocol, Settings
from ringbatch.bench.command.subject import Subject
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.outcome import UNANSWERED, Outcome
from ringbatch.bench.report.result import Result
from ringbatch.bench.served.asking import Address
from ringbatch.bench.served.engine import Served
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.machine import CpuTimes

CONFIG = Path("ringbatch.toml")
TRACE = tuple(range(0, 100_000_000, 1_000_000))
ADDRESS = Address.of("http://127.0.0.1:1")


class MadeUpFleet:
    """Is answered in the milliseconds that its engine takes, where they are awaited."""

    def __init__(self, took_ms: float, log: list[tuple[str, float]]) -> None:
        self._took_ms, self._log = took_ms, log
        self.others, self.looks_s = 0.0, 0.0

    def run(self, arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
        self._log.append((str(arrivals.kind), arrivals.seconds))
        count = 1000
        due = (np.arange(count) * int(arrivals.seconds * 1e9) // count).astype(np.int64)
        left = int((arrivals.seconds + grace_s) * 1e9) - due
        took = np.minimum(int(self._took_ms * 1e6), left)
        ends = np.where(took < left, 200, UNANSWERED).astype(np.int16)
        none = np.zeros(count, np.int64)
        return Outcome(due, took, none, ends, arrivals.seconds, 0, connections, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._log.append(("the generators end", 0.0))


class MadeUpSubject(Subject):
    """A model whose generators are made up too."""

    def fleet(self, generators: int, *, check: bool = False) -> Any:
        return self.answers  # The place of what a real one needs.

    def metrics(self) -> None:
        return None

    def cpu_times(self) -> CpuTimes:
        fleet: Any = self.answers
        fleet.looks_s += 1.0
        cpus = os.cpu_count() or 1
        return CpuTimes(fleet.looks_s, fleet.others * cpus * fleet.looks_s, 0.0, 0.0)

    def settle(self) -> None:
        """Do nothing, as the engine is never busy."""


class Host:
    """Engines, of which each takes a millisecond more than the one before.

    Args:
        least_ms: milliseconds that every engine takes in addition.
    """

    def __init__(self, least_ms: float = 0.0) -> None:
        self.started, self.running = 0, 0
        self._least_ms = least_ms
        self.log: list[tuple[str, float]] = []

    @contextmanager
    def subjects(self) -> Iterator[Subject]:
        assert self.running == 0, "two engines at once"
        self.started += 1
        self.running += 1
        fleet: Any = MadeUpFleet(self._least_ms + self.started, self.log)
        v1, path = Protocol.V1, "/v1/models/m:predict"
        try:
            yield MadeUpSubject(Served(ADDRESS, None), "m", v1, path, [b"{}"], [], fleet, True)
        finally:
            self.running -= 1


@pytest.fixture
def host() -> Host:
    return Host()


def measured(host: Host, settings: Settings, seconds: float = 0.5) -> Result:
    kept = replace(settings, arrivals=Kind.REPLAY, trace=TRACE, seconds=seconds)
    return measure(host.subjects, kept, {}, (), lambda line: None)


def test_each_round_has_an_engine_of_its_own_that_is_warm(host: Host) -> None:
    result = measured(host, Settings(config=CONFIG, rounds=3))
    assert (host.started, host.running) == (4, 0)
    assert result.settings["engines"] == "one for each round"
    # So the rounds differ as starts do.
    assert result.lone.rounds["p50 ms"] == pytest.approx([2, 3, 4], rel=0.02)
    first, *rounds = ",".join(kind for kind, _ in host.log).split("the generators end")
    assert first == "closed,"
    assert rounds == [",closed,closed,closed,replay,"] * 3 + [""]
    assert (host.log[0], host.log[2]) == (("closed", WARM_UP_S), ("closed", 0.5))


@pytest.mark.parametrize(("others", "is_noted"), [(0.04, False), (0.34, True)])
def test_cpu_time_of_others_in_a_run_is_noted(host: Host, others: float, is_noted: bool) -> None:
    @contextmanager
    def subjects() -> Iterator[Subject]:
        with host.subjects() as subject:
            fleet: Any = subject.answers
            # In the last round alone.
            fleet.others = others * (host.started == 4)
            yield subject

    settings = Settings(config=CONFIG, rounds=3, arrivals=Kind.REPLAY, trace=TRACE, seconds=0.5)
    result = measure(subjects, settings, {}, (), lambda line: None)
    assert result.others_share == pytest.approx(others)
    for point in (result.lone, result.closed, *result.points):
        assert point.figures["others %"] == pytest.approx(others * 100)
        assert ("others took up to 34% of the CPUs in a run" in point.notes) is is_noted


def test_cpu_time_of_others_while_the_knee_is_sought_is_noted(host: Host) -> None:
    @contextmanager
    def subjects() -> Iterator[Subject]:
        with host.subjects() as subject:
            fleet: Any = subject.answers
            fleet.others = 0.5 * (host.started == 1)
            yield subject

    lines: list[str] = []
    settings = Settings(config=CONFIG, rounds=1, seconds=0.5)
    result = measure(subjects, settings, {}, (), lines.append)
    assert result.lone.figures["others %"] == 0
    assert result.others_share == pytest.approx(0.5)
    assert any(line.endswith("others took 50% of the CPUs") for line in lines)


@pytest.mark.parametrize(
    "settings", [Settings(config=CONFIG, one_engine=True), Settings(url="http://127.0.0.1:1")]
)
def test_one_engine_serves_all_rounds_where_it_was_asked_for_or_runs(
    host: Host, settings: Settings
) -> None:
    result = measured(host, replace(settings, rounds=3))
    assert (host.started, host.running) == (1, 0)
    assert result.settings["engines"] == "one for all rounds"
    assert result.lone.rounds["p50 ms"] == pytest.approx([1, 1, 1], rel=0.02)


class Stopping(Host):
    """Host whose generators are stopped, as by Ctrl-C, in a given run of a given engine."""

    def __init__(self, engine: int, run: int) -> None:
        super().__init__()
        self._engine, self._run = engine, run

    @contextmanager
    def subjects(self) -> Iterator[Subject]:
        with super().subjects() as subject:
            fleet: Any = subject.answers
            runs, asked, stop_at = [0], fleet.run, self._run if self.started == self._engine else 0

            def run(arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
                runs[0] += 1
                if runs[0] == stop_at:
                    raise KeyboardInterrupt
                found: Outcome = asked(arrivals, connections, grace_s)
                return found

            fleet.run = run
            yield subject


@pytest.mark.parametrize(
    ("engine", "run", "rounds", "points"),
    [
        (2, 4, 1, 0),
        (3, 1, 2, 1),
        (3, 3, 2, 1),
        (4, 4, 3, 1),
        (1, 1, 0, 0),
        (2, 2, 0, 0),
    ],
)
def test_a_stopped_measurement_has_its_results_so_far(
    engine: int, run: int, rounds: int, points: int
) -> None:
    host = Stopping(engine, run)
    if not rounds:
        with pytest.raises(KeyboardInterrupt):
            measured(host, Settings(config=CONFIG, rounds=3))
        return
    result = measured(host, Settings(config=CONFIG, rounds=3))
    assert result.stopped
    assert result.warnings == (f"It was stopped in round {rounds} of 3.",)
    assert result.settings["rounds"] == rounds
    assert len(result.points) == points
    assert result.lone.figures["rate /s"] > 0
    assert Result.from_json(result.as_json()) == result


def test_the_announced_time_includes_the_starts() -> None:
    each = Settings(config=CONFIG, rounds=5)
    one = replace(each, one_engine=True)
    assert one.duration_s(3) == one.duration_s()
    assert each.duration_s(3)[0] == pytest.approx(one.duration_s()[0] + 5 * (3 + 2))
    assert each.duration_s(3)[1] > each.duration_s(3)[0]


@pytest.mark.parametrize("took_ms", [3_000, 5_000])
def test_a_slow_model_is_measured_with_longer_runs_and_the_words_say_so(took_ms: float) -> None:
    settings = Settings(config=CONFIG, rounds=2)
    with pytest.raises(CannotMeasure, match="needs longer runs, raise --duration-s"):
        measured(Host(took_ms), settings, 2)
    host = Host(took_ms)
    result = measured(host, settings, 10)
    assert result.closed.figures["rate /s"] > 0
    assert [seconds for kind, seconds in host.log if kind == "closed"][:2] == [10, 10]


def test_answers_in_parts_are_awaited_for_some_times_a_lone_one(host: Host) -> None:
    awaited: list[float] = []

    @contextmanager
    def subjects() -> Iterator[Subject]:
        with host.subjects() as subject:
            fleet: Any = subject.answers
            asked = fleet.run

            def run(arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
                awaited.append(grace_s)
                found: Outcome = asked(arrivals, connections, grace_s)
                return found

            fleet.run = run
            yield replace(subject, stream_s=3.0)

    settings = Settings(config=CONFIG, rounds=1, slo_first_part_ms=1000, stream=True)
    kept = replace(settings, arrivals=Kind.REPLAY, trace=TRACE, seconds=0.5)
    measure(subjects, kept, {}, (), lambda line: None)
    assert set(awaited) == {4 + 4 * 3.0}
