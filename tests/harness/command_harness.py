"""Runs of `ringbatch serve` with flags, where `calls` stands in for the engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.command import cli
from ringbatch.engine.config.document import Config

STATUS = 7
"""Exit status of commands that are recorded instead of run."""

Files = Callable[..., Path]

ONE = '[models.mnist]\npath = "model.py"\nmaxBatchSize = 5\n'
TWO = ONE + '[models.other]\npath = "other.py"\n'
VERSIONS = """
[models.m]
path = "model.py"
workers = 2
[models.m.versions.1]
maxBatchSize = 5
workers = 3
[models.m.versions.2]
max_batch_size = 6
"""


def served(calls: list[tuple[Any, ...]], *argv: str) -> Config:
    assert cli.main(["serve", *argv]) == STATUS
    ((config, reread),) = calls
    assert reread() == config
    assert isinstance(config, Config)
    return config


def refusal(calls: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["serve", *argv]) == 2
    assert calls == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(line.startswith("ringbatch: ") for line in captured.err.splitlines())
    return captured.err.removesuffix("\n").replace("ringbatch: ", "")
