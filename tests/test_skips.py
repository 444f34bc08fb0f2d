"""The tables of skipped tests, and the check by which CI finds those that run nowhere."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import skips
from skips import HOSTS, STEPS, Outcome, problems, read, where
from sources import own_files
from tiers import exhaustive, first_of

ROOT: Final = Path(__file__).resolve().parents[1]
RUN: Final = (ROOT / ".ci" / "run").read_text()
TORCH: Final = "torch is not installed"
DEVICE: Final = "there is no CUDA device"
ONE: Final = "tests/test_one.py"


def reasons(source: str) -> Iterator[str]:
    """Return each reason that a file has as a constant, or pytest makes of a package's name."""
    for call in ast.walk(ast.parse(source)):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or not name.startswith("pytest."):
            continue
        words = [key.value for key in call.keywords if key.arg == "reason"]
        if name in ("pytest.skip", "pytest.importorskip") and not words:
            words = call.args[:1]
        for word in words:
            if isinstance(word, ast.Constant) and isinstance(word.value, str):
                package = name == "pytest.importorskip" and not call.keywords
                yield f"could not import '{word.value}': " if package else word.value


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_every_reason_is_in_a_table(folder: str) -> None:
    files = {*own_files(ROOT / folder)} - {Path(__file__)}
    texts = {str(file): file.read_text() for file in files}
    found = {
        reason: name for name, text in texts.items() if "skip" in text for reason in reasons(text)
    }
    assert len(found) > 1
    assert {reason: file for reason, file in found.items() if not where(reason)} == {}


def test_the_steps_are_those_of_ci_and_all_its_runs_are_asked_at_the_end() -> None:
    steps = re.findall(r'^(?:step|finish) "(.+?)"', RUN, re.MULTILINE)
    assert set(STEPS.values()) <= set(steps)
    assert steps[-1] == "skipped tests"
    assert f"export {skips.VARIABLE}=" in RUN
    assert not set(STEPS.values()) & set(HOSTS.values())


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([(f"{ONE}::test", None)], []),
        ([(f"{ONE}::test", TORCH), (f"{ONE}::test", None)], []),
        ([(f"{ONE}::test", TORCH)], [f"skipped in every step: {ONE}::test: {TORCH}"]),
        ([(ONE, TORCH)], [f"skipped in every step: {ONE}: {TORCH}"]),
        ([(ONE, TORCH), (f"{ONE}::test", None)], []),
        ([(ONE, TORCH), (f"{ONE}::test", DEVICE)], [f"skipped in every step: {ONE}: {TORCH}"]),
        ([(ONE, TORCH), (ONE, DEVICE)], []),
        ([(f"{ONE}::test", DEVICE)], []),
        (
            [(f"{ONE}::test", "no mood"), (f"{ONE}::test", None)],
            ["in no table of tests/skips.py: no mood"],
        ),
    ],
    ids=[
        "runs",
        "runs elsewhere",
        "runs nowhere",
        "a file that runs nowhere",
        "a file that runs elsewhere",
        "a file of which nothing runs",
        "left to other hosts",
        "a test left to other hosts",
        "an unknown reason",
    ],
)
def test_a_test_that_every_step_skips_is_a_problem_unless_its_host_is_another(
    outcomes: list[tuple[str, str | None]], expected: list[str]
) -> None:
    assert problems(Outcome(*outcome) for outcome in outcomes) == expected


RUNS: Final = """
import pytest
def test_that_runs(): pass
def test_that_skips(): pytest.skip("torch is not installed")
@pytest.mark.skipif(True, reason="there is no CUDA device")
def test_that_is_skipped(): pass
@pytest.mark.xfail(reason="of course")
def test_that_is_expected_to_fail(): assert False
"""
SKIPS_ALL: Final = 'import pytest\npytest.importorskip("there_is_none")\n'


@exhaustive
@pytest.mark.parametrize("processes", first_of(["0", "2"], 1))
def test_a_run_writes_its_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    (tmp_path / "test_runs.py").write_text(RUNS)
    (tmp_path / "test_skips_all.py").write_text(SKIPS_ALL)
    tests = Path(__file__).parent
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {tests} {tests}/harness\n")
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text())
    folder = tmp_path / "outcomes"
    folder.mkdir()
    monkeypatch.setenv(skips.VARIABLE, str(folder))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    reason = "could not import 'there_is_none': No module named 'there_is_none'"
    assert sorted(read(folder)) == [
        ("test_runs.py::test_that_is_expected_to_fail", None),
        ("test_runs.py::test_that_is_skipped", DEVICE),
        ("test_runs.py::test_that_runs", None),
        ("test_runs.py::test_that_skips", TORCH),
        ("test_skips_all.py", reason),
    ]
    completed = subprocess.run(
        [sys.executable, skips.__file__, str(folder)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stdout.splitlines() == [
        f"in no table of tests/skips.py: {reason}",
        f"skipped in every step: test_runs.py::test_that_skips: {TORCH}",
        "5 tests, 2 problems",
    ]


def test_a_folder_without_outcomes_is_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, skips.__file__, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    (tmp_path / "one.jsonl").write_text(json.dumps(Outcome(ONE, None)) + "\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
