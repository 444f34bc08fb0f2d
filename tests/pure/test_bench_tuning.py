"""The search for settings, against servers that are formulas."""

import itertools
import math
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiers import exhaustive, first_of

from ringbatch.bench.command.settings import Settings
from ringbatch.bench.command.tune import (
    Goal,
    Throughput,
    ask_for_all,
    measured,
    result_text,
)
from ringbatch.bench.load.arrivals import Arrivals
from ringbatch.bench.load.outcome import UNANSWERED, Outcome
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.tuning.candidate import Candidate, Values
from ringbatch.bench.tuning.choices import choices_for, flags_of, settings_of, toml_of
from ringbatch.bench.tuning.search import Search, Trial

START, LONGEST, CLIMB = 2.5, 4, 3
PROOF = 6 * 2 * (START + 2)
"""Most that the proof of the choice may cost."""


def usual(cpus: int) -> dict[str, int | float | str]:
    """The settings as they are."""
    return {
        "max_batch_size": 32,
        "workers": 1,
        "threads": cpus,
        "frontends": 2,
        "policy": "eager",
    }


class Formula:
    """Requests/s of a server with a fixed and a growing cost of a batch, on some CPUs."""

    def __init__(self, seed: int, cpus: int) -> None:
        random = np.random.default_rng(seed)
        self.cpus = cpus
        self.fixed_us = 10 ** random.uniform(1.5, 4)
        self.row_us = 10 ** random.uniform(0, 2.5)
        self.gain_of_threads = random.uniform(0, 0.9)
        self.best_size = 2 ** random.uniform(3, 7)
        self.request_us = random.uniform(10, 60)
        self.waits_cost = random.uniform(0.7, 1.02)

    def rate(self, candidate: Candidate) -> float:
        chosen = {**usual(self.cpus), **settings_of(candidate)}
        size, workers = int(chosen["max_batch_size"]), int(chosen["workers"])
        threads, frontends = int(chosen["threads"]), int(chosen["frontends"])
        spread = 1 + (threads - 1) * self.gain_of_threads
        # Beyond a size its rows no longer fit the caches.
        rows_us = self.row_us * size * (1 + max(size / self.best_size - 1, 0) * 0.3)
        batch_us = self.fixed_us + rows_us / spread
        crowd = max((workers * threads + frontends * 0.5) / self.cpus, 1)
        model = workers * size / batch_us * 1e6 / crowd
        front = frontends / self.request_us * 1e6 / crowd
        waits = self.waits_cost if chosen["policy"] == "fixed" else 1.0
        # Whichever is slower, softly.
        return float((model**-4 + front**-4) ** -0.25 * waits)


class Ridges:
    """Requests/s that are best on two ridges, of one worker and of several: batches, frontends and
    waits are best at other values on the one than on the other. A model of trees is like it.
    """

    def __init__(self, seed: int, cpus: int) -> None:
        random = np.random.default_rng(seed)
        self.cpus = cpus
        self.at = (0.0, float(random.integers(1, int(math.log2(cpus)) + 1)))
        self.height = (0.0, random.normal(0, 0.12))
        self.valley = random.uniform(0.1, 0.4)
        self.size = random.uniform(3, 7, 2)
        self.width = random.uniform(1.5, 4, 2)
        self.frontends = random.uniform(0, min(3, math.log2(cpus)), 2)
        self.frontends_cost = random.uniform(0.03, 0.25)
        self.waits_gain = random.uniform(-0.15, 0.1, 2)
        self.waits_gain_of_size = random.uniform(-0.04, 0.04)
        self.threads_gain = random.uniform(-0.25, 0.05)

    def rate(self, candidate: Candidate) -> float:
        chosen = {**usual(self.cpus), **settings_of(candidate)}
        workers, size, frontends, threads = (
            math.log2(int(chosen[key]))
            for key in ("workers", "max_batch_size", "frontends", "threads")
        )
        waits = {"eager": 0.0, "fixed": 1.0 if chosen.get("max_latency_ms") == 1 else 1.6}
        waited = waits[str(chosen["policy"])]
        ridges = [
            self.height[i]
            - self.valley * abs(workers - self.at[i])
            - ((size - self.size[i]) / self.width[i]) ** 2 / (2 if size < self.size[i] else 4)
            - self.frontends_cost * abs(frontends - self.frontends[i])
            + waited * self.waits_gain[i]
            + (self.waits_gain_of_size * (size - 4) if waited else 0.0)
            for i in range(2)
        ]
        slower = threads * self.threads_gain * (1 if workers else 0.5)
        return 30_000 * math.exp(float(np.logaddexp(*(12 * np.asarray(ridges)))) / 12 + slower)


def tuned(server: Formula | Ridges, noise: float, seed: int) -> tuple[Candidate, Search]:
    """Run a search, and return its best candidate and the search itself."""
    random = np.random.default_rng(seed)
    search = Search(choices_for(server.cpus), usual(server.cpus))
    while (trial := search.next()) is not None:
        doubt = noise / math.sqrt(trial.effort)
        search.tell(trial, server.rate(trial.candidate) * math.exp(random.normal(0, doubt)))
    return search.best()[0], search


def grid(cpus: int) -> list[Candidate]:
    """Return every combination of choices."""
    choices = choices_for(cpus)
    return [
        dict(zip(choices, chosen, strict=True)) for chosen in itertools.product(*choices.values())
    ]


@pytest.mark.parametrize(
    ("kind", "noise", "near"),
    [
        pytest.param(Formula, 0.02, 0.9, marks=exhaustive),
        (Formula, 0.05, 0.9),
        pytest.param(Formula, 0.1, 0.75, marks=exhaustive),
        pytest.param(Ridges, 0.02, 0.8, marks=exhaustive),
        pytest.param(Ridges, 0.05, 0.7, marks=exhaustive),
        pytest.param(Ridges, 0.1, 0.55, marks=exhaustive),
    ],
)
@pytest.mark.parametrize("cpus", [2, *(pytest.param(cpus, marks=exhaustive) for cpus in (16, 64))])
def test_it_comes_near_the_best_of_the_grid_in_a_tenth_of_the_time(
    kind: type[Formula] | type[Ridges], noise: float, near: float, cpus: int
) -> None:
    candidates = grid(cpus)
    shares = []
    for seed in range(40):
        server = kind(seed, cpus)
        best = max(server.rate(candidate) for candidate in candidates)
        found, search = tuned(server, noise, seed)
        assert search.cost <= 0.1 * (START + LONGEST) * len(candidates) + PROOF
        shares.append(server.rate(found) / best)
    assert np.mean(np.asarray(shares) >= 0.95) >= near
    assert np.mean(shares) >= 0.93


def test_nothing_is_changed_where_nothing_helps() -> None:
    search = Search(choices_for(4), usual(4))
    random = np.random.default_rng(0)
    while (trial := search.next()) is not None:
        search.tell(trial, 1000 * math.exp(random.normal(0, 0.005)))
    assert search.best() == ({}, 1.0)


@pytest.mark.parametrize("noise", first_of([0.05, 0.02, 0.1], 1))
@pytest.mark.parametrize("drift", [0, 0.02])
@pytest.mark.parametrize("cpus", [2, pytest.param(16, marks=exhaustive)])
def test_noise_and_drift_recommend_nothing(noise: float, drift: float, cpus: int) -> None:
    """All but a few searches recommend nothing on a host where no setting matters."""
    recommended = 0
    for seed in range(40):
        random, search = np.random.default_rng(seed), Search(choices_for(cpus), usual(cpus))
        level = 0.0
        while (trial := search.next()) is not None:
            level += random.normal(0, drift)
            doubt = noise / math.sqrt(trial.effort)
            search.tell(trial, 1000 * math.exp(level + random.normal(0, doubt)))
        recommended += bool(search.best()[0])
    assert recommended <= 4


def test_an_unproven_gain_is_named_so_and_leaves_nothing_to_paste() -> None:
    search = Search(choices_for(2), usual(2))
    for score in (1000.0, 1100.0):
        trial = search.next()
        assert trial is not None
        search.tell(trial, score)
    text = result_text(search, "m", Slo())
    assert "nothing is proven to be worth a change: " in text
    assert "there was no time to prove that" in text
    assert "[models" not in text
    assert search.conclude()
    assert not search.conclude()
    scores = itertools.cycle((1300.0, 950.0, 1250.0, 1000.0))
    while (trial := search.next()) is not None:
        search.tell(trial, next(scores) if trial.candidate else 1000.0)
    assert (
        " 6 runs of it beside as many of the settings as they are do not prove that"
        in result_text(search, "m", Slo())
    )
    assert search.best() == ({}, 1.0)


def test_a_setting_without_effect_stays_as_it_is() -> None:
    search = Search(choices_for(4), usual(4))
    while (trial := search.next()) is not None:
        search.tell(trial, 1000.0 * int(settings_of(trial.candidate).get("max_batch_size", 32)))
    found, ratio = search.best()
    assert found == {"max_batch_size": {"max_batch_size": 128}}
    assert ratio == pytest.approx(4, rel=0.1)


def test_an_unmeasurable_value_is_never_chosen() -> None:
    search = Search(choices_for(4), usual(4))
    while (trial := search.next()) is not None:
        search.tell(trial, 0.0 if "max_batch_size" in trial.candidate else 1000.0)
    assert search.best() == ({}, 1.0)
    ratios = {
        int(one.values["max_batch_size"]): one.ratio
        for one in search.estimates()
        if one.factor == "max_batch_size"
    }
    assert ratios[32] == 1.0
    assert None in ratios.values()


@pytest.mark.parametrize("trials", range(0, 30, 3))
def test_it_may_be_ended_at_any_time(trials: int) -> None:
    server, search = Formula(3, 16), Search(choices_for(16), usual(16))
    for _ in range(trials):
        trial = search.next()
        assert trial is not None
        search.tell(trial, server.rate(trial.candidate))
    found, ratio = search.best()
    assert ratio >= 1
    assert server.rate(found) >= server.rate({})


def test_a_lucky_trial_is_made_again_and_its_trials_add_up() -> None:
    search = Search(choices_for(2), usual(2))
    lucky: Candidate | None = None
    again = 0
    while (trial := search.next()) is not None:
        if trial.candidate and lucky is None:
            lucky = trial.candidate
            search.tell(trial, 1300.0)
        else:
            again += trial.candidate == lucky
            search.tell(trial, 1000.0)
    assert again >= 1
    assert search.best()[1] < 1.3


def test_it_ends_with_the_choice_and_the_settings_as_they_are_for_longer() -> None:
    server, search, efforts = Formula(1, 8), Search(choices_for(8), usual(8)), list[Trial]()
    while (trial := search.next()) is not None:
        efforts.append(trial)
        search.tell(trial, server.rate(trial.candidate))
    assert efforts[0] == Trial({}, 1)
    assert {trial.effort for trial in efforts[:-6]} == {1}
    before, after = Trial({}, 2), Trial(search.best()[0], 2)
    assert efforts[-6:] == [before, after, after, before, before, after]
    assert search.cost == CLIMB + sum(START + trial.effort for trial in efforts)


def test_settings_as_they_are_are_one_of_the_combinations() -> None:
    known, unknown = (Search(choices_for(4), present) for present in (usual(4), {"workers": 3}))
    for search in (known, unknown):
        search.tell(Trial({}, 1), 1000.0)
    ratios = [one.ratio for one in known.estimates() if one.factor == "frontends"]
    assert len(ratios) == len([1, 2, 4])
    assert 1.0 in ratios
    # Of settings that are not known nothing can be said.
    assert 1.0 in [one.ratio for one in known.estimates() if one.factor == "workers and threads"]
    assert len(unknown.estimates()) == sum(map(len, choices_for(4).values()))


def test_a_model_without_batches_may_have_them() -> None:
    search = Search(choices_for(2), {**usual(2), "max_batch_size": 0})
    while (trial := search.next()) is not None:
        search.tell(trial, 1000.0 * (2 if "max_batch_size" in trial.candidate else 1))
    assert list(search.best()[0]) == ["max_batch_size"]


def test_where_nothing_may_change_one_trial_is_enough() -> None:
    search = Search({})
    assert search.next() == Trial({}, 1)
    search.tell(Trial({}, 1), 1000.0)
    assert search.next() is None
    assert search.best() == ({}, 1.0)


def test_processes_share_the_cpus() -> None:
    for values in choices_for(16)["workers and threads"]:
        assert int(values["workers"]) * int(values["threads"]) <= 16
    assert choices_for(1)["workers and threads"] == [{"workers": 1, "threads": 1}]
    assert list(choices_for(4, keep=("workers", "policy"))) == ["max_batch_size", "frontends"]


class MadeUpServer:
    """Server that answers all connections with one batch after the other.

    A batch takes so long, and the first one `cold_s` longer. It stands in for the generators too.
    """

    def __init__(self, batch_s: float, cold_s: float = 0.0) -> None:
        self._batch_s, self._cold_s = batch_s, cold_s
        self.asked_s: list[float] = []

    def run(self, arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
        self.asked_s.append(arrivals.seconds)
        due, took, ends, now = list[float](), list[float](), list[int](), 0.0
        while now < arrivals.seconds:
            batch_s = self._batch_s + self._cold_s
            left_s = arrivals.seconds + grace_s - now
            due.append(now)
            took.append(min(batch_s, left_s))
            ends.append(200 if batch_s <= left_s else UNANSWERED)
            now, self._cold_s = now + batch_s, 0.0
        due_ns, took_ns = (
            np.repeat((np.asarray(each) * 1e9).astype(np.int64), connections)
            for each in (due, took)
        )
        statuses = np.repeat(np.asarray(ends, np.int16), connections)
        none = np.zeros(len(due_ns), np.int64)
        return Outcome(due_ns, took_ns, none, statuses, arrivals.seconds, 0, connections, {})


def rate_as_it_is(server: MadeUpServer, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the rate measured for the configuration as it is."""

    @contextmanager
    def entered(value: Any) -> Iterator[Any]:
        yield value

    subject = SimpleNamespace(
        model="m", fleet=lambda generators: entered(server), in_steps=lambda: False
    )
    module = "ringbatch.bench.command.tune"
    monkeypatch.setattr(f"{module}.started", lambda config, flags: entered(None))
    monkeypatch.setattr(f"{module}.find", lambda served, settings: subject)
    config = Path("ringbatch.toml")
    goal = Goal(config, Settings(config=config), Slo(), 600, ())
    return measured(goal, None, Trial({}, 1), 1024)[1].rate_per_s


@pytest.mark.parametrize("batch_s", [0.01, 0.49, 0.52, 1.0, 3.0, 8.0])
def test_runs_are_as_long_as_the_model_needs(
    batch_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rate_as_it_is(MadeUpServer(batch_s), monkeypatch)
    assert found == pytest.approx(1024 / batch_s, rel=0.11)


def test_a_first_batch_that_takes_longer_makes_no_run_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = MadeUpServer(0.01, cold_s=3.0)
    assert rate_as_it_is(server, monkeypatch) == pytest.approx(1024 / 0.01, rel=0.02)
    assert max(server.asked_s) == 1.0


def test_findings_are_listed_with_the_rate_of_each_value() -> None:
    search = Search(choices_for(2), usual(2))
    while (trial := search.next()) is not None:
        chosen = settings_of(trial.candidate)
        score = 0.0 if chosen.get("frontends") == 1 else 100.0 * int(chosen.get("workers", 1))
        search.tell(trial, score)
    text = result_text(search, "mnist", Slo(20))
    assert "| frontends 1 | cannot be measured |" in text
    assert "| workers 2, threads 1 | 1.00 | " in text
    assert "2.00 times the requests/s with a p99 within 20 ms, as measured in 3 runs of it" in text
    rows = {row.split(" | ")[0]: row.split(" | ")[1:] for row in text.splitlines()}
    tried = {one.point for one in search._trials}
    assert len({row[-1] for row in rows.values() if row}) > 1
    for (ratio, trials), words in zip(list(rows.values())[2:-5], list(rows)[2:-5], strict=True):
        assert ratio.startswith("about ") is trials.startswith("none, estimated from"), words
    assert len(tried) < math.prod(len(values) for values in choices_for(2).values())
    assert search.best()[1] == pytest.approx(2, rel=0.05)
    assert text.endswith("[models.mnist]\nworkers = 2\nthreads = 1")
    assert "worth a change" in result_text(Search(choices_for(2)), "mnist", Slo())


def test_settings_as_they_are_may_miss_the_limit_in_a_later_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Trial]()

    def made_up(wish: Goal, model: str | None, trial: Trial, first: int) -> tuple[str, Throughput]:
        missed = not trial.candidate and Trial({}, 1) in asked
        asked.append(trial)
        rate = 0.0 if missed else 1000.0 * int(settings_of(trial.candidate).get("workers", 1))
        return "m", Throughput(rate, 16, "made up")

    monkeypatch.setattr("ringbatch.bench.command.tune.measured", made_up)
    config, search = Path("ringbatch.toml"), Search(choices_for(2), usual(2))
    goal = Goal(config, Settings(config=config), Slo(5), 600, ())
    assert ask_for_all(goal, search) == "m"
    assert Trial({}, 2) in asked
    assert search.best()[1] > 1


def test_a_candidate_is_flags_and_a_configuration() -> None:
    chosen: dict[str, Values] = {
        "frontends": {"frontends": 4},
        "policy": {"policy": "fixed", "max_latency_ms": 1.0},
    }
    assert flags_of(chosen) == [
        *("--frontends", "4"),
        *("--policy", "fixed", "--max-latency-ms", "1.0"),
    ]
    assert toml_of(chosen, "mnist") == (
        '[server]\nfrontends = 4\n\n[models.mnist]\npolicy = "fixed"\nmax_latency_ms = 1.0'
    )
    assert toml_of({}, "mnist") == ""


@pytest.mark.parametrize("model", ["mnist", "resnet50.v1", "a-b_C3", 'größe "x"'])
def test_a_configuration_loads_for_any_name_of_the_model(model: str) -> None:
    text = toml_of({"frontends": {"frontends": 4}, "size": {"max_batch_size": 8}}, model)
    assert tomllib.loads(text) == {
        "server": {"frontends": 4},
        "models": {model: {"max_batch_size": 8}},
    }
    assert ('"' in text) is (model not in ("mnist", "a-b_C3"))


@pytest.mark.parametrize(("trial_s", "proven"), [(1.0, True), (30.0, True), (80.0, False)])
def test_time_is_left_for_the_proof(
    trial_s: float, proven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [0.0], list[Trial]()

    def made_up(wish: Goal, model: str | None, trial: Trial, first: int) -> tuple[str, Throughput]:
        now[0] += trial_s
        asked.append(trial)
        rate = 1000.0 * int(settings_of(trial.candidate).get("workers", 1))
        return "m", Throughput(rate, 16, "made up")

    monkeypatch.setattr("ringbatch.bench.command.tune.measured", made_up)
    monkeypatch.setattr("ringbatch.bench.command.tune.time.monotonic", lambda: now[0])
    config, search = Path("ringbatch.toml"), Search(choices_for(2), usual(2))
    ask_for_all(Goal(config, Settings(config=config), Slo(), 400, ()), search)
    assert now[0] <= 400
    assert bool(search.best()[0]) is proven
    assert [trial.effort for trial in asked].count(2) >= (6 if proven else 1)


@pytest.mark.parametrize("in_steps", [True, False])
def test_a_model_in_steps_is_tried_without_settings_that_have_no_effect(
    in_steps: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[Trial]()

    def made_up(wish: Goal, model: str | None, trial: Trial, first: int) -> tuple[str, Throughput]:
        asked.append(trial)
        rate = 10.0 * int(settings_of(trial.candidate).get("max_batch_size", 32))
        return "m", Throughput(rate, 16, "made up", in_steps=in_steps)

    monkeypatch.setattr("ringbatch.bench.command.tune.measured", made_up)
    config, search = Path("ringbatch.toml"), Search(choices_for(2), usual(2))
    ask_for_all(Goal(config, Settings(config=config), Slo(), 600, ()), search)
    tried = {key for trial in asked for key in settings_of(trial.candidate)}
    assert ("policy" in tried) is not in_steps
    assert "max_batch_size" in tried
    assert "workers" in tried
    assert asked[0] == Trial({}, 1)
    assert settings_of(search.best()[0])["max_batch_size"] == 128
    assert search.best()[1] == pytest.approx(4, rel=0.05)
    text = result_text(search, "m", Slo())
    assert ("policy" in text) is not in_steps
    words = "the model works in steps: policy has no effect on it"
    assert (words in capsys.readouterr().err) is in_steps


def test_a_factor_that_is_kept_anyway_cannot_be_left_out() -> None:
    search = Search(choices_for(2, keep=("policy",)))
    trial = search.next()
    assert trial is not None
    search.tell(trial, 100.0)
    before = search.next()
    assert not search.leave_out("policy")
    assert search.next() == before
    assert search.leave_out("frontends")
    assert search.leave_out("frontends") is False
