"""Output of a command whose reader has left, or that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import first_of

from ringbatch.engine.command.broken_pipe import READER_LEFT, UNWRITTEN, until_reader_leaves

SERVED = '[models.mnist]\npath = "model.py"\n'


@pytest.mark.parametrize("argv", [["check", "--config", "some.toml"], ["manual"], ["--version"]])
def test_a_reader_that_leaves_ends_a_command_without_a_word(
    tmp_path: Path, argv: list[str]
) -> None:
    (tmp_path / "some.toml").write_text(SERVED)
    (tmp_path / "model.py").write_text("def predict(x): return x\n")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ringbatch.engine", *argv]
    with os.fdopen(writing, "wb") as output:
        ended = subprocess.run(
            command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, check=False, text=True
        )
    assert (ended.returncode, ended.stderr) == (READER_LEFT, "")


@pytest.mark.parametrize(("argv", "status"), [(["--version"], 0), (["serve", "absent.py"], 2)])
def test_a_command_without_standard_output_has_its_status(
    tmp_path: Path, argv: list[str], status: int
) -> None:
    command = [sys.executable, "-m", "ringbatch.engine", *argv]
    closed = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    ended = subprocess.run(closed, cwd=tmp_path, stderr=subprocess.PIPE, check=False, text=True)
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("package", ["ringbatch", "ringbatch.engine"])
def test_without_standard_error_no_problem_is_printed_among_results(
    tmp_path: Path, package: str
) -> None:
    command = [sys.executable, "-m", package, "serve", "absent.py"]
    closed = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    ended = subprocess.run(closed, cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.parametrize(
    "argv",
    first_of(
        [["manual"], ["check", "--config", "some.toml"], ["--version"], ["units"], ["doctor"]], 1
    ),
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_reported_without_a_traceback(
    tmp_path: Path, argv: list[str], unbuffered: str
) -> None:
    (tmp_path / "some.toml").write_text(SERVED)
    (tmp_path / "model.py").write_text("def predict(x): return x\n")
    command = [sys.executable, "-m", "ringbatch.engine", *argv]
    with open("/dev/full", "wb") as output:
        ended = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, last) == (
        UNWRITTEN,
        "ringbatch: standard output: No space left on device",
    )
    assert "Traceback" not in ended.stderr


def test_another_file_that_cannot_be_written_is_no_output() -> None:
    def command() -> int:
        with open("/dev/full", "wb", buffering=0) as full:
            return full.write(b"x")

    with pytest.raises(OSError, match="No space left"):
        until_reader_leaves(command)


def test_characters_that_the_output_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "mö.py").write_text("def predict(x): return x\n")
    ended = subprocess.run(
        [sys.executable, "-m", "ringbatch.engine", "check", "mö.py", "--name", "m"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert rf'path = "{tmp_path}/m\xf6.py"' in ended.stdout


def test_another_pipe_that_breaks_is_no_readers() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    def command() -> int:
        return os.write(writing, b"x")

    with pytest.raises(BrokenPipeError):
        until_reader_leaves(command)
    os.close(writing)
