"""Tests of bench/tuned.py: its demands on the search, with servers that are formulas."""

import json
import sys
from pathlib import Path

import pytest
import tuned
from report import record
from tuned import grid, words_of

from ringbatch.bench.command import tune
from ringbatch.bench.command.tune import Goal, Throughput
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.tuning.choices import choices_for, settings_of
from ringbatch.bench.tuning.search import LONGEST, Trial


def formula(batch_size: int, workers: int) -> float:
    """The best are batches of 64 and two workers."""
    return workers * 1000.0 * (1 - abs(64 - batch_size) / 128)


def measured(
    goal: Goal, model: str | None, trial: Trial, first: int = 16
) -> tuple[str, Throughput]:
    chosen = settings_of(trial.candidate)
    if chosen.get("policy") == "fixed":
        raise CannotMeasure("it does not start")
    size, workers = int(chosen.get("max_batch_size", 32)), int(chosen.get("workers", 1))
    rate = formula(size, workers)
    return model or "null", Throughput(rate, 16, f"{rate} requests/s")


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> tuple[int, list[float]]:
    """The exit status, and the figures that were held to limits."""
    monkeypatch.setattr(tune, "measured", measured)
    monkeypatch.setattr(tuned, "measured", measured)
    monkeypatch.setattr(record, "versions", dict)
    monkeypatch.setenv("RINGBATCH_BENCH_RESULTS", str(folder))
    words = ["tuned.py", "--models", "null", "--cpus", "2", *arguments]
    monkeypatch.setattr(sys, "argv", words)
    status = tuned.main()
    (file,) = folder.glob("tuned-*.json")
    return status, [limit["value"] for limit in json.loads(file.read_text())["limits"]]


def test_the_grid_is_every_combination_of_the_choices() -> None:
    candidates = list(grid(choices_for(2)))
    assert len(candidates) == len(set(map(words_of, candidates))) == 3 * 7 * 2 * 3
    assert words_of({}) == "as it is"


def test_a_search_that_finds_the_best_meets_its_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, limits = run(monkeypatch, tmp_path, "--keep", "frontends")
    assert (status, limits) == (0, [1.0])


def test_a_search_that_finds_nothing_misses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tuned, "ask_for_all", lambda goal, search: "null")
    status, limits = run(monkeypatch, tmp_path, "--keep", "frontends")
    assert status == 1
    assert limits == [pytest.approx(0.375)]


def test_a_grid_may_be_an_earlier_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (of_the_best, _) = run(monkeypatch, tmp_path)
    (file,) = tmp_path.glob("tuned-*.json")
    earlier = file.rename(tmp_path / "earlier.json")
    monkeypatch.setattr(tuned, "screened", None)
    words = ("--grid", str(earlier))
    assert run(monkeypatch, tmp_path, *words) == (0, [of_the_best])
    for other, message in (
        (("--keep", "policy"), "its keep is [], but here it is ['policy']"),
        (("--models", "trees"), "it has no grid of trees with the same combinations"),
    ):
        with pytest.raises(SystemExit):
            run(monkeypatch, tmp_path, *words, *other)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [((), 2), (("--grid-effort", str(LONGEST - 1)), 1), (("--keep", "policy"), 1)],
)
def test_time_is_held_to_a_limit_where_the_grid_is_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], limits: int
) -> None:
    assert len(run(monkeypatch, tmp_path, *arguments)[1]) == limits


def test_a_model_that_cannot_be_made_here_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_trees(folder: Path) -> tuned.Subject:
        raise tuned.NotHere("no library")

    monkeypatch.setattr(tuned, "MADE", {**tuned.MADE, "null": no_trees})
    assert run(monkeypatch, tmp_path) == (0, [])
    (file,) = tmp_path.glob("tuned-*.json")
    assert json.loads(file.read_text())["absent"] == {"null": "no library"}
