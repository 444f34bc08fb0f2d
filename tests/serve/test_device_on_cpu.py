"""An engine whose workers are on a CUDA device, whose calls a CPU takes.

What only a real device can show is in test_cuda.py.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve.client import Connection, Response, fast, instances, predict_target, request
from serve.dying_workers import compared
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

from ringbatch.shm import device_pace
from ringbatch.shm.engines import only
from ringbatch.shm.segment import Segment

pytest.importorskip("torch", reason="torch is not installed")

WaitUntil = Callable[..., Any]

HARNESS = Path(__file__).parents[1] / "harness"
CLIENTS = 32
UNDER_WAY = "2 batches are under way"
WIDTH = 512
MODEL = """
import sys
sys.path.insert(0, {harness!r})
import cuda_on_cpu
cuda_on_cpu.install({lag_s})
import torch
from ringbatch.engine import InvalidInput, Tensor
inputs = [Tensor("x", "FP32", [{width}])]
outputs = [Tensor("y", "FP32", [])]
on_device = True
cuda_graph = {graph}
def load(device):
    global weights
    assert device == "cuda:0"
    weights = torch.arange({width}, dtype=torch.float32) % 7
def predict(x):
    {before}
    return x @ weights + {more}
"""


def written(
    folder: Path, *, graph: bool = True, before: str = "pass", more: int = 0, lag_s: float = 0.0
) -> dict[str, Any]:
    """A model file, and the settings of its model."""
    path = folder / "m.py"
    how = {"graph": graph, "before": before, "more": more, "lag_s": lag_s}
    text = MODEL.format(harness=str(HARNESS), width=WIDTH, **how)
    path.write_text(text)
    return {"path": str(path), "device": "cuda:0", "max_batch_size": 8}


def ask(server: Server, row: Any) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(fast("m", instances(row)))


def drawn(count: int) -> Any:
    return np.random.default_rng(0).integers(-8, 8, size=(count, WIDTH))


def wanted(rows: Any, more: int = 0) -> Any:
    return (rows @ (np.arange(WIDTH) % 7) + more).tolist()


def all_answers(server: Server, rows: Any) -> Any:
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(lambda row: ask(server, row.tolist()), rows))
    assert {answer.status for answer in found} == {200}, [answer.body for answer in found][:3]
    return [answer.json["predictions"][0] for answer in found]


def worker_of(server: Server, number: int = 0) -> int:
    return server.titles().get(f"ringbatch: worker m/{number}", 0)


def test_workers_on_a_device_answer_while_they_are_killed_and_the_model_is_reloaded(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    server = start({"m": {**written(tmp_path), "workers": 2}})
    rows = drawn(CLIENTS * 10)
    with ThreadPoolExecutor(1) as beside:
        answers = beside.submit(all_answers, server, rows)
        killed = worker_of(server)
        os.kill(killed, signal.SIGKILL)
        assert answers.result() == wanted(rows)
    wait_until(lambda: worker_of(server) not in (0, killed), "another worker is there")
    listed = subprocess.run(
        [*COMMAND, "models", "--engine", str(server.pid)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "  device cuda:0: rows of x " in listed
    assert "; CUDA graphs of 1, 2, 4, 8 rows, 0 MiB\n" in listed
    segment = Segment.attach(only(server.process.pid))
    paces = [device_pace.read(segment, number) for number in (0, 1)]
    segment.detach()
    assert [pace.sizes for pace in paces] == [4, 4]
    assert min(pace.lead_ns for pace in paces) > 200_000
    written(tmp_path, more=5)
    subprocess.run([*COMMAND, "reload", "--engine", str(server.pid)], check=True)
    assert all_answers(server, rows) == wanted(rows, more=5)
    assert server.stop() == 0
    assert "cudaHostUnregister" in server.stderr


def test_two_batches_are_under_way_also_as_the_worker_is_killed(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """A worker that is the only one gets a full batch behind the one that it runs."""
    server = start({"m": {**written(tmp_path, lag_s=0.005), "workers": 1, "timeout_s": 100}})
    rows = drawn(CLIENTS * 10)
    with ThreadPoolExecutor(1) as beside:
        answers = beside.submit(all_answers, server, rows)
        wait_until(lambda: UNDER_WAY in server.stderr, "two batches are under way")
        killed = worker_of(server)
        os.kill(killed, signal.SIGKILL)
        assert answers.result() == wanted(rows)
    worker = worker_of(server)
    assert worker not in (0, killed)
    # It looks at a lone batch between short sleeps.
    assert os.sched_getscheduler(worker) == os.SCHED_OTHER
    assert Path(f"/proc/{worker}/timerslack_ns").read_text() == "1\n"
    assert server.stop() == 0


def test_a_response_has_the_copy_times_of_its_batch(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    server = start({"m": written(tmp_path)}, access_log="all", log_format="json")
    (row,) = drawn(1).tolist()
    headers = {"X-Server-Timing": "1", "X-Request-Id": "copied"}
    with Connection(server.port) as connection:
        answer = connection.ask(request(predict_target("m"), instances(row), headers=headers))
    found = re.findall(r"([a-z]+);dur=([0-9.]+)", answer.headers["server-timing"])
    times = {name: float(ms) for name, ms in found}
    assert [name for name, _ in found][1:4] == ["gather", "copy", "run"]
    copy_ms, total_ms = times.pop("copy"), times.pop("total")
    assert 0 < copy_ms <= times["run"]
    assert sum(times.values()) == pytest.approx(total_ms, abs=0.01)

    def logged() -> dict[str, Any] | None:
        lines = [line for line in server.stderr.splitlines() if '"copied"' in line]
        return json.loads(lines[0]) if lines else None

    line = wait_until(logged, "the request is in the log")
    assert line["copy_ms"] == pytest.approx(copy_ms, abs=0.001)
    assert server.stop() == 0


@exhaustive
@pytest.mark.parametrize("lag_s", [0, 0.005])
def test_every_answer_is_right_while_workers_die(
    start: Start, tmp_path: Path, lag_s: float
) -> None:
    server = start({"m": {**written(tmp_path, lag_s=lag_s), "workers": 3, "timeout_s": 100}})
    rows = drawn(64)
    count, kills, wrong = compared(
        server,
        lambda row: ask(server, row.tolist()),
        rows,
        wanted(rows),
        clients=CLIENTS,
        seconds=30,
    )
    assert not wrong, wrong[:3]
    assert kills > 3
    assert count > CLIENTS * kills
    assert server.stop() == 0


def test_a_batch_that_is_too_large_for_the_device_runs_in_parts(
    start: Start, tmp_path: Path
) -> None:
    before = "if len(x) > 2: raise RuntimeError('CUDA out of memory')"
    model = written(tmp_path, graph=False, before=before)
    server = start({"m": {**model, "policy": "fixed", "max_latency_ms": 200, "warm_up": "off"}})
    worker = worker_of(server)
    rows = drawn(8)
    assert all_answers(server, rows) == wanted(rows)
    assert worker_of(server) == worker, "memory that is used up ends no worker"
    assert server.stop() == 0


def test_a_request_that_the_model_refuses_fails_alone(start: Start, tmp_path: Path) -> None:
    before = "if (x[:, 0] == 99).any(): raise InvalidInput('99')"
    server = start({"m": {**written(tmp_path, graph=False, before=before), "policy": "fixed"}})
    rows = drawn(8)
    rows[3, 0] = 99
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: ask(server, row.tolist()), rows))
    assert [answer.status for answer in found] == [200, 200, 200, 400, 200, 200, 200, 200]
    right = wanted(rows)
    assert all(
        answer.json["predictions"] == [right[number]]
        for number, answer in enumerate(found)
        if number != 3
    )
    assert server.stop() == 0
