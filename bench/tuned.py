"""Choices of `ringbatch tune`, against a grid of everything that it could have chosen.

Three models: one of no work, trees (XGBoost, or scikit-learn's where that is not installed) and the
encoder of texts all-MiniLM-L6-v2, whose weights are in a Python package
(docs/how-to/serve-texts.md). For each first the command's own search; then every combination of its
choices, each measured as long as the search measures what it ends with. Last the choice, the best
few of the grid and the settings as they were are measured in turn, round after round: the best of
many measurements is also the luckiest of them. The target is the most requests/s.

A grid takes a quarter of an hour or more, and has the same best whatever the search does: with
`--grid FILE` it is taken from a result of this script, of the same machine and settings. Its time
is then no limit.
"""

import argparse
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from peers.servers import BENCH, MODELS
from report.record import Report, machine
from report.rounds import number, ratios, run_rounds, table

from ringbatch.bench.command.settings import Settings
from ringbatch.bench.command.tune import FIRST_LEVEL, Goal, Throughput, ask_for_all, measured
from ringbatch.bench.load.child import GeneratorDied
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.tuning.candidate import Candidate, Values
from ringbatch.bench.tuning.choices import choices_for, settings_of
from ringbatch.bench.tuning.search import LONGEST, Search, Trial
from ringbatch.engine.command.tune import present_in

LEAST_SHARE: Final = 0.95
MOST_TIME: Final = 0.17
TREES: Final = 300
FEATURES: Final = 30
AS_IT_IS: Final = "as it is"
TUNED: Final = "tuned"
_OF_A_GRID: Final = (
    *(("settings", key) for key in ("unit_s", "keep", "grid_effort", "cpus")),
    *(("machine", key) for key in ("cpu", "cores", "kernel")),
)
"""Keys of a result that a grid depends on, each with its section."""
TEXT: Final = '{"instances": ["the weather report of the small town by the river was late again"]}'


class NotHere(RuntimeError):
    """A model cannot be made on this machine; the message says why."""


class AnotherGrid(ValueError):
    """A result has no grid that could be used; the message says why."""


@dataclass(frozen=True)
class Subject:
    """A model to tune.

    Attributes:
        section: of the configuration, without its name.
        request: the body that is sent; None for made-up ones.
    """

    section: str
    request: str | None = None


@dataclass(frozen=True)
class Screened:
    """Requests/s of one combination of the grid."""

    candidate: Candidate
    rate_per_s: float


@dataclass(frozen=True)
class Found:
    """Figures of one model.

    Attributes:
        choices: combinations in the grid.
        grid_s: time that the grid took.
        tune_s: how long the command's search took.
        of_grid_time: the command's time divided by the grid's.
        of_the_best: the requests/s of the choice, by those of the best of the grid.
        of_as_it_was: the same, by those of the settings as they were.
    """

    choices: int
    grid_s: float
    tune_s: float
    of_grid_time: float
    of_the_best: float
    of_as_it_was: float


def null(folder: Path) -> Subject:
    """Return the model of no work."""
    return Subject(f'path = "{MODELS / "null.py"}"')


def trees(folder: Path) -> Subject:
    """Return a model of 300 trees, fitted on made-up rows of 30 numbers.

    Raises:
        NotHere: no library for trees is installed.
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, FEATURES)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + random.normal(size=4000) / 2 > 0).astype(int)
    with suppress(ModuleNotFoundError):
        xgboost = importlib.import_module("xgboost")
        model = xgboost.XGBClassifier(n_estimators=TREES, n_jobs=1).fit(x, y)
        model.save_model(folder / "trees.ubj")
        return Subject(f'path = "{folder / "trees.ubj"}"')
    with suppress(ModuleNotFoundError):
        joblib = importlib.import_module("joblib")
        ensemble = importlib.import_module("sklearn.ensemble")
        fitted = ensemble.HistGradientBoostingClassifier(max_iter=TREES, early_stopping=False).fit(
            x, y
        )
        joblib.dump(fitted, folder / "trees.joblib")
        return Subject(f'path = "{folder / "trees.joblib"}"\ntrust_pickle = true')
    raise NotHere("neither xgboost nor scikit-learn is installed")


def minilm(folder: Path) -> Subject:
    """Return the encoder of texts, written as ONNX from the weights in a package.

    Raises:
        NotHere: the package is not installed, or one that is needed beside it.
    """
    script = BENCH.parent / "tests" / "examples" / "minilm_to_onnx.py"
    made = subprocess.run(
        [sys.executable, str(script), str(folder / "minilm")], capture_output=True, text=True
    )
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise NotHere(f"{script.name} ends with status {made.returncode}: {last}")
    # Some choices cost seconds a batch to warm up; each run has requests before it that do.
    return Subject(f'path = "{folder / "minilm"}"\nwarm_up = "off"', TEXT)


MADE: Final[Mapping[str, Callable[[Path], Subject]]] = {
    "null": null,
    "trees": trees,
    "minilm": minilm,
}


def goal_for(name: str, folder: Path, options: argparse.Namespace) -> Goal:
    """Return the task that the command would get.

    Raises:
        NotHere: the model cannot be made on this machine.
    """
    subject = MADE[name](folder)
    config, request = folder / "ringbatch.toml", None
    config.write_text(f"[models.{name}]\n{subject.section}\n")
    if subject.request is not None:
        request = folder / "request.json"
        request.write_text(subject.request)
    settings = Settings(model=name, config=config, request=request, even_if_busy=True)
    present = present_in(config, name)
    return Goal(config, settings, Slo(), options.budget_s, options.keep, present, options.unit_s)


def grid(choices: Mapping[str, Sequence[Values]]) -> Iterator[Candidate]:
    """Yield every combination of the choices."""
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def screened(goal: Goal, candidates: Iterable[Candidate], effort: int) -> Iterator[Screened]:
    """Yield each combination with its requests/s; 0 if it cannot be measured."""
    # As the search does: what is tried is like the settings as they are.
    first = rate(goal, {}, effort).connections
    for candidate in candidates:
        try:
            yield Screened(candidate, rate(goal, candidate, effort, first).rate_per_s)
        except (CannotMeasure, GeneratorDied) as error:
            print(f"  {words_of(candidate)}: {str(error).splitlines()[-1]}", flush=True)
            yield Screened(candidate, 0.0)


@dataclass(frozen=True)
class Grid:
    """All combinations of one model.

    Attributes:
        screened: each with its requests/s.
        took_s: how long that took.
    """

    screened: list[Screened]
    took_s: float


def measured_grid(
    name: str,
    goal: Goal,
    choices: Mapping[str, Sequence[Values]],
    effort: int,
    report: Report,
) -> Grid:
    """Measure it."""
    began, found = time.monotonic(), list[Screened]()
    for one in screened(goal, grid(choices), effort):
        found.append(one)
        report.run(model=name, grid=words_of(one.candidate), screened_per_s=one.rate_per_s)
    return Grid(found, time.monotonic() - began)


def earlier_grids(file: Path, settings: Mapping[str, Any]) -> dict[str, Grid]:
    """Take the grids from a result of this script, in which the search may have been another.

    Args:
        file: the result.
        settings: of this run.

    Raises:
        AnotherGrid: it is of another machine or of other settings, or not all of it is there.
    """
    result: dict[str, Any] = json.loads(file.read_text())
    here = {"settings": settings, "machine": machine()}
    for where, key in _OF_A_GRID:
        then, now = result[where][key], here[where][key]
        if then != now:
            raise AnotherGrid(f"its {key} is {then}, but here it is {now}")
    found, choices = {}, choices_for(settings["cpus"], settings["keep"])
    by_words = {words_of(candidate): candidate for candidate in grid(choices)}
    for name in settings["models"]:
        runs = [run for run in result["runs"] if run["model"] == name]
        rates = {run["grid"]: run["screened_per_s"] for run in runs if "grid" in run}
        took_s = [run["grid_s"] for run in runs if "grid_s" in run]
        if not took_s or rates.keys() != by_words.keys():
            raise AnotherGrid(f"it has no grid of {name} with the same combinations")
        screened = [Screened(by_words[words], rate) for words, rate in rates.items()]
        found[name] = Grid(screened, took_s[0])
    return found


def rate(goal: Goal, candidate: Candidate, effort: int, first: int = FIRST_LEVEL) -> Throughput:
    """Return the requests/s with these settings."""
    return measured(goal, goal.bench.model, Trial(candidate, effort), first)[1]


def words_of(candidate: Candidate) -> str:
    """Return the settings in words."""
    settings = settings_of(candidate).items()
    return ", ".join(f"{key} {value}" for key, value in settings) or AS_IT_IS


def tune_and_compare(
    name: str,
    goal: Goal,
    options: argparse.Namespace,
    report: Report,
    earlier: Grid | None,
) -> Found:
    """Measure one model: the search, the grid, and their choices beside each other."""
    choices = choices_for(options.cpus, goal.keep)
    search = Search(choices, goal.present)
    began = time.monotonic()
    ask_for_all(goal, search)
    tune_s = time.monotonic() - began
    chosen = search.best()[0]

    whole = earlier or measured_grid(name, goal, choices, options.grid_effort, report)
    best = sorted(whole.screened, key=lambda one: -one.rate_per_s)[: options.finalists]
    entries: dict[str, Candidate] = {AS_IT_IS: {}, TUNED: chosen}
    entries |= {words_of(one.candidate): one.candidate for one in best}

    def run(turn: int, entry: str) -> float:
        found = rate(goal, entries[entry], LONGEST).rate_per_s
        settings = words_of(entries[entry])
        report.run(model=name, round=turn, entry=entry, settings=settings, requests_per_s=found)
        return found

    runs = run_rounds(list(entries), options.rounds, run)
    first = max((words_of(one.candidate) for one in best), key=lambda entry: median(runs[entry]))
    return Found(
        choices=len(whole.screened),
        grid_s=whole.took_s,
        tune_s=tune_s,
        of_grid_time=tune_s / whole.took_s,
        of_the_best=ratios(runs[TUNED], runs[first]).median,
        of_as_it_was=ratios(runs[TUNED], runs[AS_IT_IS]).median,
    )


def hold_to_limits(report: Report, name: str, found: Found, options: argparse.Namespace) -> None:
    """The choice is near the best; in a tenth of the time, where the grid is whole and was measured
    now: what a trial takes changes with the host."""
    limit = f"{name}: requests/s of the choice against the best of {found.choices}"
    report.limit(limit, found.of_the_best, at_least=LEAST_SHARE)
    if options.grid_effort >= LONGEST and not options.keep and options.grid is None:
        limit = f"{name}: time of the search against that of the grid"
        report.limit(limit, found.of_grid_time, at_most=MOST_TIME)


def show(all_found: Mapping[str, Found]) -> str:
    """Return the table of the findings."""
    rows = [
        [
            name,
            str(found.choices),
            *map(number, (found.grid_s, found.tune_s, found.of_grid_time)),
            *map(number, (found.of_the_best, found.of_as_it_was)),
        ]
        for name, found in all_found.items()
    ]
    header = ["", "choices", "grid, s", "tune, s", "of the grid's", "of the best", "of as it was"]
    return table(header, rows)


def main() -> int:
    """Run the models; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MADE, default=list(MADE))
    parser.add_argument("--unit-s", type=float, default=1, help="length of the shortest run")
    parser.add_argument("--budget-s", type=float, default=600, help="of the search")
    parser.add_argument("--keep", nargs="+", default=[], help="settings that are not varied")
    parser.add_argument(
        "--grid-effort", type=int, default=LONGEST, help="length of a run, in units"
    )
    parser.add_argument("--finalists", type=int, default=3, help="of the grid, measured again")
    parser.add_argument("--rounds", type=int, default=3, help="in which they are")
    parser.add_argument("--grid", type=Path, metavar="FILE", help="a result that has the grid")
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    earlier: Mapping[str, Grid] = {}
    if options.grid is not None:
        try:
            earlier = earlier_grids(options.grid, vars(options))
        except (OSError, ValueError, KeyError) as error:
            parser.error(f"--grid {options.grid}: {error}")
    report = Report("tuned", {**vars(options), "grid": options.grid and str(options.grid)})
    all_found: dict[str, Found] = {}
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="bench-tuned-") as made:
            try:
                goal = goal_for(name, Path(made), options)
            except NotHere as why:
                report.without({name: str(why)})
                continue
            all_found[name] = tune_and_compare(name, goal, options, report, earlier.get(name))
        report.run(model=name, **asdict(all_found[name]))
    report.print_text(show(all_found))
    for name, found in all_found.items():
        hold_to_limits(report, name, found, options)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
