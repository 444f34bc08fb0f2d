"""Fixtures for tests of the command line: an engine that only records, and files to name."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_harness import STATUS, Files

from ringbatch.engine.doctor.obstacles import Outlook


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of the commands, recorded instead of run."""
    recorded: list[tuple[Any, ...]] = []

    def record(*given: Any) -> int:
        recorded.append(given)
        return STATUS

    for module, function in (
        ("supervisor.run", "run"),
        ("demo.demo", "run"),
        ("report.status", "main"),
        ("command.reload", "main"),
    ):
        stand_in = ModuleType(module)
        setattr(stand_in, function, record)
        monkeypatch.setitem(sys.modules, f"ringbatch.engine.{module}", stand_in)
    return recorded


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host that lacks nothing."""
    stand_in = ModuleType("obstacles")
    setattr(stand_in, "outlook", lambda _config, *, passed: Outlook([], []))  # noqa: B010
    monkeypatch.setitem(sys.modules, "ringbatch.engine.doctor.obstacles", stand_in)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Write ringbatch.toml, and model.py beside it, into the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.py", "other.py", "a b.py"):
        (tmp_path / name).touch()

    def write(text: str) -> Path:
        path = tmp_path / "ringbatch.toml"
        path.write_text(text)
        return path

    return write
