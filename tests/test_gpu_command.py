"""The command for a machine with a GPU, with an interpreter that only notes what it is given.

Tests .ci/gpu and tests/on_gpu.py.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tiers import exhaustive, first_of

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPT: Final = ROOT / ".ci/gpu"
LIMIT_S: Final = 720
"""Bound on the sum of the steps' limits, as the device is lent for little longer."""
NOTING: Final = """#!/bin/sh
echo "$*" >> {folder}/asked
echo "$*, said"
case "$*" in *{fails}*) exit 3 ;; esac
"""
TORCH: Final = """
class version: {version}
class cuda:
    def is_available(): return {available}
__version__ = "2.x"
"""


def ran(
    folder: Path, fails: str = "nothing", steps: tuple[str, ...] = (), **more: str
) -> tuple[int, str, list[str]]:
    """Return the status, what it said, and what the interpreter was asked."""
    folder.mkdir(exist_ok=True)
    python = folder / "python"
    python.write_text(NOTING.format(folder=folder, fails=fails))
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python), **more}
    argv = [str(SCRIPT), str(folder / "out"), *steps]
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, (folder / "asked").read_text().splitlines()


def test_each_step_runs_and_its_output_is_kept(tmp_path: Path) -> None:
    status, said, asked = ran(tmp_path)
    assert (status, said.splitlines()[-1]) == (0, "4 steps passed; failed: none")
    scripts = ["-m", "tests/on_gpu.py", "bench/gpu.py", "tests/chaos/run.py"]
    assert [line.split()[0] for line in asked] == scripts
    kept = {file.name: file.read_text() for file in (tmp_path / "out").iterdir()}
    assert {*kept} == {"doctor.txt", "tests.txt", "bench.txt", "chaos.txt"}
    assert kept["bench.txt"].endswith("resnet50-uint8 encoder mlp image-to-image, said\n")
    assert all("cpu" not in line for line in asked)


@pytest.mark.parametrize(
    ("fails", "name"), [("doctor", "doctor"), ("test_cuda", "tests"), ("soak", "chaos")]
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
    status, said, asked = ran(tmp_path, DEVICE="cpu")
    assert (status, said.splitlines()[-1]) == (0, "3 steps passed; failed: none")
    assert "--programs small small-uint8 small-to-image" in asked[1]
    for line in asked[1:]:
        script, *words = line.split()
        known = subprocess.run(
            [sys.executable, str(ROOT / script), "--help"], capture_output=True, text=True
        ).stdout
        options = [word for word in words if word.startswith("--")]
        assert options
        assert [option for option in options if option not in known] == []
    _, _, (tests,) = ran(tmp_path / "named", steps=("tests",), DEVICE="cpu")
    for word in tests.split():
        assert not word.startswith("tests/") or (ROOT / word).exists()


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        pytest.param("", "torch cannot be imported: import of torch halted", marks=exhaustive),
        pytest.param("cuda = None", "torch 2.x has no CUDA", marks=exhaustive),
        ("cuda = '13'", "torch finds no CUDA device; nvidia-smi and ringbatch doctor say what"),
    ],
)
def test_without_a_gpu_the_tests_fail_and_say_why(tmp_path: Path, torch: str, words: str) -> None:
    if torch:
        (tmp_path / "torch.py").write_text(TORCH.format(version=torch, available=False))
    done = on_gpu(tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(words)
    assert done.stdout.endswith(": every test would be skipped, so none is run\n")


@pytest.mark.parametrize(("body", "status"), first_of([("assert False", 1), ("pass", 0)], 1))
def test_with_a_gpu_the_tests_run(tmp_path: Path, body: str, status: int) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(version="cuda = '13'", available=True))
    test = tmp_path / "test_one.py"
    test.write_text(f"def test_one() -> None:\n    {body}\n")
    done = on_gpu(tmp_path, "-q", "-p", "no:cacheprovider", str(test))
    assert done.returncode == status, done.stdout
    assert f"1 {'failed' if status else 'passed'}" in done.stdout


def on_gpu(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests with the `torch` of a folder, or with none."""
    program = (
        "import sys, runpy\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"if not {(folder / 'torch.py').exists()}: sys.modules['torch'] = None\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        f"runpy.run_path({str(ROOT / 'tests/on_gpu.py')!r}, run_name='__main__')\n"
    )
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True)
