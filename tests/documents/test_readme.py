"""README.md: its examples run, the files that it names exist, and it stays short."""

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed
from documents.pages import README, example, output_after, text_of
from serve.server import COMMAND, Server

ANSWER_ROUNDED_TO: Final = 0.05


def test_the_curl_example_gets_the_answer_that_is_shown(served: Server, tmp_path: Path) -> None:
    answer = json.loads(printed(example(README, "curl"), tmp_path, served))
    batch_id, numbers = re.fullmatch(
        r'\{"message":"","batchId":"([0-9a-f]{8})-\.\.\.","predictions":\[\[(.*),\.\.\.\]\]\}',
        output_after(README, "curl"),
    ).groups()  # type: ignore[union-attr]
    assert list(answer) == ["message", "batchId", "predictions"]
    assert answer["message"] == ""
    assert len(answer["batchId"].partition("-")[0]) == len(batch_id)
    (row,) = answer["predictions"]
    assert len(row) == 10
    for number, text in zip(row, numbers.split(","), strict=False):
        assert number == pytest.approx(float(text), abs=ANSWER_ROUNDED_TO)


def test_the_configuration_example_is_sound(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(example(README, "model.py"))
    (tmp_path / "ringbatch.toml").write_text(example(README, "ringbatch.toml"))
    completed = subprocess.run(
        [*COMMAND, "check", "--settings", "--config", "ringbatch.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    for line in example(README, "ringbatch.toml").splitlines():
        assert line.partition(" = ")[0] in completed.stdout


def test_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) <= 250
