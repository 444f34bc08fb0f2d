"""Workers that hang or fail while they load: at the start, after a death, and in a reload."""

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serve import supervised
from serve.client import Connection, fast, instances, request
from serve.server import COMMAND, Server, Start
from serve.supervised import serves
from tiers import exhaustive, first_of

WaitUntil = Callable[..., Any]

server = supervised.server

IMPATIENT: dict[str, dict[str, Any]] = {"unruly": {"path": "unruly.py", "load_timeout_s": 4.0}}
STUCK = """
import time
from pathlib import Path
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]
while (Path(__file__).parent / "hold {}").exists():
    time.sleep(0.01)
def load():
    while (Path(__file__).parent / "hold load").exists():
        time.sleep(0.01)
def predict(x):
    while (Path(__file__).parent / "hold run").exists():
        time.sleep(0.01)
    return x
"""
PHASES = {"open": "its start", "load": "loading the model", "run": "warm-up"}


@pytest.mark.parametrize("phase", first_of(PHASES, 1))
def test_a_first_start_that_hangs_ends_in_words(
    server: Callable[..., Server], tmp_path: Path, phase: str
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK.format("open"))
    (tmp_path / f"hold {phase}").touch()
    limits = {"load_timeout_s": 4.0, "warm_up_s": 0.1}
    own = server({"stuck": {"path": str(tmp_path / "stuck.py")} | limits})
    assert own.process.wait() == 2
    limit = "load_timeout_s = 4" + " and warm_up_s = 0.1 together" * (phase == "run")
    words = f"{PHASES[phase]} took longer than {limit}; raise that if it needs longer"
    assert own.stderr.splitlines()[-1] == f"ringbatch: worker stuck/0: {words}"
    # What faulthandler wrote.
    assert 'stuck.py", line' in own.stderr
    assert own.gone()


@exhaustive
@pytest.mark.parametrize("phase", first_of(PHASES, 1))
def test_a_replacement_that_hangs_is_replaced(
    start: Start, wait_until: WaitUntil, tmp_path: Path, phase: str
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK.format("open"))
    model = {"path": str(tmp_path / "stuck.py"), "load_timeout_s": 4.0, "warm_up_s": 0.1}
    own = start({"stuck": model})
    hold = tmp_path / f"hold {phase}"
    hold.touch()
    os.kill(own.role("worker stuck/0"), signal.SIGKILL)
    wait_until(lambda: f"{PHASES[phase]} took longer" in own.stderr, "it is found")
    hold.unlink()
    with Connection(own.port) as connection:
        assert connection.ask(fast("stuck", instances([1]))).status == 200


FICKLE = """
from pathlib import Path
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [1])]
def predict(x):
    if (Path(__file__).parent / "broken").exists():
        raise RuntimeError("no such kernel")
    return x
"""


@exhaustive
def test_a_replacement_that_fails_its_warm_up_is_replaced_as_one_that_fails_to_load(
    start: Start, wait_until: WaitUntil, tmp_path: Path
) -> None:
    (tmp_path / "fickle.py").write_text(FICKLE)
    own = start({"fickle": {"path": str(tmp_path / "fickle.py")}})
    (tmp_path / "broken").touch()
    os.kill(own.role("worker fickle/0"), signal.SIGKILL)
    wait_until(lambda: "worker fickle/0 starts again in " in own.stderr, "it is found")
    words = "fickle.py: line 7: warm-up of fickle with x FP32 [1, 1]: RuntimeError: no such kernel"
    assert words in own.stderr
    with Connection(own.port) as connection:
        assert connection.ask(request("/v2/health/ready", method="GET")).status == 503
        (tmp_path / "broken").unlink()
        wait_until(
            lambda: connection.ask(fast("fickle", instances([1]))).status == 200, "it serves again"
        )


@exhaustive
def test_a_load_that_hangs_fails_its_reload_and_the_next_order_is_carried_out(
    start: Start,
) -> None:
    own = start(IMPATIENT | {"other": {"path": "moody.py"}})
    folder = own.config.parent

    def reload(model: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "reload", "--model", model, "--pid", str(own.pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (folder / "hold").touch()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(reload, "unruly")
        second = pool.submit(reload, "other")
        assert (first.result().returncode, second.result().returncode) == (1, 0)
    assert "loading the model took longer than load_timeout_s = 4" in first.result().stderr
    assert serves(own)
    (folder / "hold").unlink()
    assert reload("unruly").returncode == 0
    assert own.stop() == 0
