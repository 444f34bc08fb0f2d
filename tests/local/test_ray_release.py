"""A worker that has let go of its actor does not miss it, and one that has not does."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringbatch.engine.runtimes import ray as runtime
from ringbatch.engine.runtimes.model import Options
from ringbatch.engine.runtimes.ray_terms import RayPlace

PLACE = RayPlace(
    engine="e",
    version="1",
    index=0,
    loader="python",
    threads=1,
    address="",
    namespace="e",
    cpus=1.0,
    gpus=0.0,
    resources=(),
    scheduling="default",
    placement_group="",
    keep_s=0.0,
    load_timeout_s=60.0,
)


class Cluster:
    """Takes the place of the package: its one actor is dead, and calls say so when they may."""

    class RayError(Exception):
        """As its package names them."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=self.RayError)
        self.asked, self.may = threading.Event(), threading.Event()

    def get(self, call: str, timeout: float | None = None) -> bool:
        """What a call gives."""
        if call == "leave":
            return False
        self.asked.set()
        self.may.wait()
        raise self.RayError("the actor is dead")


@pytest.mark.parametrize("released", [True, False])
def test_only_who_still_wants_its_actor_is_lost_without_it(
    released: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    monkeypatch.setattr(runtime, "_PING_S", 0.0)
    (tmp_path / "model.py").write_text("def predict(x): return x\n")
    lost: list[str] = []

    def end(why: str, _blames_batch: bool) -> None:
        lost.append(why)
        driver._released.set()

    options: Any = Options(max_batch_size=1, threads=1, name="m", ray=PLACE, lost=end)  # type: ignore[arg-type]
    cluster = Cluster()
    driver = runtime._Driver(cluster, tmp_path / "model.py", options, PLACE)
    calls = {name: SimpleNamespace(remote=lambda *_, name=name: name) for name in ("kept", "leave")}
    driver._actor = SimpleNamespace(**calls)
    keeping = threading.Thread(target=driver._keep)
    keeping.start()
    wait_until(cluster.asked.is_set, "the actor is asked")
    if released:
        driver.release(unwanted=True)
    cluster.may.set()
    keeping.join()
    assert lost == ([] if released else ["the actor is dead"])
