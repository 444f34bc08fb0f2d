"""The command for a machine with a GPU, with an interpreter that only notes what it is given.

Tests .ci/gpu.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPT: Final = ROOT / ".ci/gpu"
LIMIT_S: Final = 720
"""Bound on the sum of the steps' limits, as the device is lent for little longer."""
NOTING: Final = """#!/bin/sh
echo "$*" >> {folder}/asked
echo "$*, said"
case "$*" in *{fails}*) exit 3 ;; esac
"""


def ran(
    folder: Path, fails: str = "nothing", steps: tuple[str, ...] = (), **more: str
) -> tuple[int, str, list[str]]:
    """Return the status, what it said, and what the interpreter was asked."""
    python = folder / "python"
    python.write_text(NOTING.format(folder=folder, fails=fails))
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python), **more}
    argv = [str(SCRIPT), str(folder / "out"), *steps]
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, (folder / "asked").read_text().splitlines()


def test_each_step_runs_and_what_it_said_is_kept(tmp_path: Path) -> None:
    status, said, asked = ran(tmp_path)
    assert (status, said.splitlines()[-1]) == (0, "4 steps passed; failed: none")
    assert [line.split()[0] for line in asked] == ["-m", "-m", "bench/gpu.py", "tests/chaos/run.py"]
    kept = {file.name: file.read_text() for file in (tmp_path / "out").iterdir()}
    assert {*kept} == {"doctor.txt", "tests.txt", "bench.txt", "chaos.txt"}
    assert kept["bench.txt"].endswith("resnet50-uint8 encoder mlp, said\n")
    assert all("cpu" not in line for line in asked)


@pytest.mark.parametrize(
    ("fails", "name"), [("doctor", "doctor"), ("pytest", "tests"), ("soak", "chaos")]
)
def test_a_step_that_fails_is_named_and_the_others_run(
    tmp_path: Path, fails: str, name: str
) -> None:
    status, said, asked = ran(tmp_path, fails)
    assert (status, said.splitlines()[-1]) == (1, f"3 steps passed; failed: {name}")
    assert len(asked) == 4
    assert f"-- {name}: status 3 after" in said


def test_steps_can_be_named(tmp_path: Path) -> None:
    status, said, asked = ran(tmp_path, steps=("chaos", "doctor"))
    assert (status, said.splitlines()[-1]) == (0, "2 steps passed; failed: none")
    assert [line.split()[:3] for line in asked] == [
        ["-m", "ringbatch.engine", "doctor"],
        ["tests/chaos/run.py", "--soak", "60"],
    ]


def test_a_step_that_is_none_is_refused(tmp_path: Path) -> None:
    argv = [str(SCRIPT), str(tmp_path / "out"), "tests", "banch"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no step banch; the steps are doctor tests bench chaos" in done.stderr
    assert not (tmp_path / "out").exists()


def test_all_limits_together_are_twelve_minutes() -> None:
    limits = [int(found) for found in re.findall(r"^step \w+ (\d+) ", SCRIPT.read_text(), re.M)]
    assert len(limits) == 4
    # Each may take 5 s more to be killed.
    assert sum(limits) + 5 * len(limits) <= LIMIT_S


def test_the_options_are_those_of_the_scripts(tmp_path: Path) -> None:
    _, _, asked = ran(tmp_path, DEVICE="cpu")
    assert "--programs small small-uint8" in asked[2]
    for line in asked[2:]:
        script, *words = line.split()
        known = subprocess.run(
            [sys.executable, str(ROOT / script), "--help"], capture_output=True, text=True
        ).stdout
        options = [word for word in words if word.startswith("--")]
        assert options
        assert [option for option in options if option not in known] == []
    for word in asked[1].split():
        assert not word.startswith("tests/") or (ROOT / word).exists()
