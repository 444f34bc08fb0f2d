"""A worker that has let go of its actor does not miss it, and one that has not does."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from ray_place import ANYWHERE

from ringbatch.engine.models.model import Options, RestartWorker
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.runtimes.ray import runtime as runtime


class Cluster:
    """Stand-in for Ray's package: its one actor is dead, and calls say so when they may."""

    class RayError(Exception):
        """Ray's base class of errors."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=self.RayError)
        self.asked, self.may = threading.Event(), threading.Event()

    def get(self, call: str, timeout: float | None = None) -> bool:
        """Return the result of a call."""
        if call == "leave":
            return False
        self.asked.set()
        self.may.wait()
        raise self.RayError("the actor is dead")


@pytest.mark.parametrize("released", [True, False])
def test_only_a_worker_that_still_wants_its_actor_is_lost_without_it(
    released: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    monkeypatch.setattr(runtime, "_PING_S", 0.0)
    (tmp_path / "model.py").write_text("def predict(x): return x\n")
    lost: list[str] = []

    def end(why: str, _blames_batch: bool) -> NoReturn:
        lost.append(why)
        raise RestartWorker(why)

    options = Options(max_batch_size=1, threads=1, name="m", ray=ANYWHERE, lost=end)
    cluster = Cluster()
    driver = runtime._Driver(cluster, tmp_path / "model.py", options, ANYWHERE, open_model)
    calls = {name: SimpleNamespace(remote=lambda *_, name=name: name) for name in ("kept", "leave")}
    driver._actor = SimpleNamespace(**calls)

    def keep() -> None:
        with suppress(RestartWorker):
            driver._keep()

    keeping = threading.Thread(target=keep)
    keeping.start()
    wait_until(cluster.asked.is_set, "the actor is asked")
    if released:
        driver.release(unwanted=True)
    cluster.may.set()
    keeping.join()
    assert lost == ([] if released else ["the actor is dead"])
