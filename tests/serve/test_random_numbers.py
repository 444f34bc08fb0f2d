"""First random numbers of workers and frontends: all differ, unless the user's code seeds them."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from dev_shm import takes
from serve.client import fast
from serve.load import Load
from serve.server import COMMAND, Server, Start, configured
from tiers import exhaustive, only

pytestmark = takes(20)

WaitUntil = Callable[..., Any]

FIRST: Final = """
import json, random, time
import numpy as np
{seed}
FIRST = [np.random.random(), np.random.standard_normal(), random.random()]
with open(__file__ + ".drawn", "a") as file:
    file.write(json.dumps(FIRST) + "\\n")
"""
MODEL: Final = """
def predict(values):
    time.sleep(0.02)
    return values
"""
APPLICATION: Final = """
from starlette.applications import Starlette
app = Starlette()
"""
SEEDED: Final = "np.random.seed(20); random.seed(20)"
KINDS: Final = 3
"""Number of kinds of random numbers in `FIRST`."""
WORKERS: Final = 4
"""Number of workers of each of the two models that seed nothing."""


class Files:
    """A folder with model files that write down the first numbers of each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.write()

    def write(self, end: str = "") -> None:
        """Write the files `a`, `b` and `seeded`, with a text at their ends."""
        for name in ("a", "b", "seeded"):
            self.add(name, SEEDED if name == "seeded" else "", MODEL + end)

    def add(self, name: str, seed: str, rest: str) -> Path:
        """Write a file."""
        file = self._folder / f"{name}.py"
        file.write_text(FIRST.format(seed=seed) + rest)
        return file

    def models(self, workers: int | list[int], **keys: Any) -> dict[str, dict[str, Any]]:
        """Return the configuration of the models."""
        counts = {"a": workers, "b": workers, "seeded": 2}
        return {
            name: {"path": str(self._folder / f"{name}.py"), "workers": count, **keys}
            for name, count in counts.items()
        }

    def drawn(self, *names: str) -> list[list[float]]:
        """Return the first numbers of each process so far."""
        texts = [(self._folder / f"{name}.py.drawn").read_text() for name in names]
        return [json.loads(line) for text in texts for line in text.splitlines()]


def distinct(rows: list[list[float]]) -> list[int]:
    """Return the count of distinct values for each kind of number."""
    return [len(set(numbers)) for numbers in zip(*rows, strict=True)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@exhaustive
def test_workers_differ_after_a_start_a_restart_and_a_reload(
    files: Files, start: Start, wait_until: WaitUntil
) -> None:
    server = start(files.models(WORKERS))
    processes = 2 * WORKERS
    for model in ("a", "b"):
        os.kill(server.role(f"worker {model}/0"), signal.SIGKILL)
        processes += 1
    wait_until(lambda: len(files.drawn("a", "b")) == processes, "workers again")
    files.write(end="\n")
    subprocess.run([*COMMAND, "reload", "--pid", str(server.pid)], check=True)
    processes += 2 * WORKERS
    rows = files.drawn("a", "b")
    assert len(rows) >= processes
    assert distinct(rows) == [len(rows)] * KINDS
    seeded = files.drawn("seeded")
    assert len(seeded) >= 4
    assert distinct(seeded) == [1] * KINDS


@exhaustive
def test_workers_differ_after_a_handover_and_when_more_come_with_the_load(
    files: Files, start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    models = files.models([1, WORKERS], max_batch_size=2, scale_up_after_s=0.5)
    name = f"random-{os.getpid()}"
    old = start(models, name=name)
    folder = tmp_path / "next"
    folder.mkdir()
    new = Server(folder, *configured(folder, models, name=name), command="handover")
    try:
        new.wait_ready()
        assert old.process.wait() == 0
        processes = 2 + 2 * WORKERS
        with ExitStack() as stack:
            for model in ("a", "b"):
                load = Load(new, ask=lambda _, body, model=model: fast(model, body))  # type: ignore[misc]
                stack.callback(load.stop)
            wait_until(lambda: len(files.drawn("a", "b")) >= processes, "all workers", 120)
    finally:
        new.destroy()
    rows = files.drawn("a", "b")
    assert distinct(rows) == [len(rows)] * KINDS
    seeded = files.drawn("seeded")
    assert len(seeded) >= 4
    assert distinct(seeded) == [1] * KINDS


@exhaustive
@pytest.mark.parametrize(
    ("seed", "expected"), only({"unseeded": ("", 5), "seeded": (SEEDED, 1)}, "unseeded")
)
def test_frontends_with_an_application_differ(
    seed: str, expected: int, files: Files, start: Start, wait_until: WaitUntil
) -> None:
    application = files.add("application", seed, APPLICATION)
    server = start(files.models(1), frontends=3, app=f"{application.with_suffix('')}:app")
    os.kill(server.role("frontend 0"), signal.SIGKILL)
    # The supervisor imports it first, in a process of its own.
    wait_until(lambda: len(files.drawn("application")) == 5, "a frontend again")
    assert distinct(files.drawn("application")) == [expected] * KINDS
