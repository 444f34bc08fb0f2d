"""An engine whose workers are on a GPU: what only a real device can show. Skipped where none is."""

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
from serve.client import Connection, Response, fast, instances
from serve.dying_workers import compared
from serve.server import COMMAND, Server, Start, configured
from tiers import exhaustive

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

from torch_models import Calling, Linear, exported  # noqa: E402

WaitUntil = Callable[..., Any]

CLIENTS = 32
DEVICE = "cuda:0"
PYTHON_MODEL = """
import torch
class Model:
    def load(self, device):
        self.weights = torch.ones(3, 2, device=device)
    def predict(self, rows):
        x = torch.tensor(rows, dtype=torch.float32, device=self.weights.device)
        return [{"device": str(x.device), "y": row} for row in (x @ self.weights).tolist()]
"""


def on_gpu(folder: Path, data: bytes, **more: Any) -> dict[str, dict[str, Any]]:
    """The configuration of a program that runs there, under the name `m`."""
    path = folder / "m.pt2"
    path.write_bytes(data)
    return {"m": {"path": str(path), "device": DEVICE, **more}}


def ask(server: Server, *rows: Any) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(fast("m", instances(*rows)))


def worker_of(server: Server, number: int = 0) -> int:
    return server.titles().get(f"ringbatch: worker m/{number}", 0)


def test_a_worker_that_is_killed_costs_no_answer_where_two_share_a_device(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    server = start(on_gpu(tmp_path, exported(Linear(), "x: batch 3"), workers=2))
    rows = np.random.default_rng(0).normal(size=(CLIENTS * 50, 3)).round(3)
    wanted = Linear()(torch.tensor(rows, dtype=torch.float32)).detach().numpy()
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pool.submit(ask, server, row.tolist()) for row in rows]
        killed = worker_of(server)
        os.kill(killed, signal.SIGKILL)
        results = [answer.result() for answer in answers]
    assert {result.status for result in results} == {200}
    got = np.array([result.json["predictions"][0] for result in results])
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    wait_until(lambda: worker_of(server) not in (0, killed), "another worker is there")
    assert server.stop() == 0


def test_a_batch_that_is_too_large_for_the_device_runs_in_parts(
    start: Start, tmp_path: Path
) -> None:
    whole = torch.cuda.get_device_properties(0).total_memory
    share = whole // 3 // 4  # in floats: two rows fit, and three do not
    module = Calling(
        lambda x: x + torch.ones((x.shape[0], share), device=x.device).narrow(1, 0, 1)[:, 0]
    )
    models = on_gpu(
        tmp_path,
        exported(module, "x: batch"),
        policy="fixed",
        max_latency_ms=200,
        max_batch_size=8,
        warm_up="off",
    )
    server = start(models)
    worker = worker_of(server)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda value: ask(server, value), range(8)))
    assert [answer.json.get("predictions") for answer in answers] == [[n + 1] for n in range(8)]
    assert worker_of(server) == worker, "memory that is used up ends no worker"
    assert server.stop() == 0


def test_a_request_that_breaks_the_device_fails_alone_and_others_are_answered(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    module = Calling(lambda x: torch.ones(3, device=x.device)[x])
    server = start(on_gpu(tmp_path, exported(module, "x int64: batch"), warm_up="off"))
    before = worker_of(server)
    broken = ask(server, 7)
    assert (broken.status, "died while it ran" in broken.error) == (503, True), broken.body
    wait_until(lambda: worker_of(server) not in (0, before), "another worker is there")
    answer = ask(server, 1)
    assert (answer.status, answer.json.get("predictions")) == (200, [1.0])
    assert "has failed; the worker ends" in server.stderr
    assert "SIGABRT" not in server.stderr
    assert server.stop() == 0


@pytest.mark.parametrize("sizes", [[], [3, 8]])
def test_rows_come_from_requests_memory_and_graphs_answer_alike(
    start: Start, tmp_path: Path, sizes: list[int]
) -> None:
    width = 4096
    module = Calling(lambda x: x.sum(1) * 2 + 1)
    more: dict[str, Any] = {"cuda_graphs": "required", "max_batch_size": 8}
    if sizes:
        more["allowed_batch_sizes"] = sizes
    server = start(on_gpu(tmp_path, exported(module, f"x: batch {width}"), **more))
    rows = np.random.default_rng(0).integers(-8, 8, size=(CLIENTS * 8, width))
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda row: ask(server, row.tolist()), rows))
    got = [answer.json["predictions"][0] for answer in answers]
    assert got == (rows.sum(1) * 2 + 1).tolist()
    graphs = ", ".join(map(str, sizes or [1, 2, 4, 8]))
    assert f"CUDA graphs of {graphs} rows" in server.stderr
    assert server.stop() == 0


@exhaustive
def test_every_answer_is_right_while_workers_die(start: Start, tmp_path: Path) -> None:
    module = Calling(lambda x: x.sum(1) * 2 + 1)
    more: dict[str, Any] = {"workers": 4, "timeout_s": 100, "cuda_graphs": "required"}
    server = start(on_gpu(tmp_path, exported(module, "x: batch 512"), max_batch_size=8, **more))
    rows = np.random.default_rng(0).integers(-8, 8, size=(64, 512))
    count, kills, wrong = compared(
        server,
        lambda row: ask(server, row),
        rows.tolist(),
        (rows.sum(1) * 2 + 1).tolist(),
        clients=CLIENTS,
        seconds=60,
    )
    assert not wrong, wrong[:3]
    assert kills > 5
    assert count > CLIENTS * kills
    assert server.stop() == 0


def test_a_program_that_cannot_be_captured_is_served_without_graphs(
    start: Start, tmp_path: Path
) -> None:
    module = Calling(lambda x: x + torch.rand_like(x) * 0.5)
    server = start(on_gpu(tmp_path, exported(module, "x: batch"), max_batch_size=4))
    (answer,) = ask(server, 3).json["predictions"]
    assert 3 <= answer <= 3.5
    assert "no CUDA graphs: with 4 rows output y differs" in server.stderr
    assert server.stop() == 0


def test_a_model_in_python_gets_the_device(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(PYTHON_MODEL)
    server = start({"m": {"path": str(path), "device": DEVICE}})
    (answer,) = ask(server, [1, 2, 3]).json["predictions"]
    assert answer == {"device": DEVICE, "y": [6.0, 6.0]}
    assert server.stop() == 0


def test_the_memory_limit_of_a_worker_leaves_the_devices_address_space_alone(
    start: Start, tmp_path: Path
) -> None:
    more = {"worker_memory_bytes": 4 << 30}
    server = start(on_gpu(tmp_path, exported(Linear(), "x: batch 3"), **more))
    assert ask(server, [1, 2, 3]).status == 200
    assert server.stop() == 0


def test_a_device_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    models = on_gpu(tmp_path, exported(Linear(), "x: batch 3"))
    models["m"]["device"] = "cuda:99"
    words = configured(tmp_path / "e", models)
    done = subprocess.run([*COMMAND, "serve", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert re.search(r'm\.pt2: device is "cuda:99", but there is only cuda:0', done.stderr)


def test_the_memory_of_the_device_is_free_again_when_the_engine_has_stopped(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    size = 1 << 30
    module = Calling(lambda x: x + torch.ones(size, device=x.device).sum())
    free = torch.cuda.mem_get_info()[0]
    server = start(on_gpu(tmp_path, exported(module, "x: batch"), max_batch_size=1))
    assert ask(server, 1).status == 200
    assert torch.cuda.mem_get_info()[0] < free - size
    assert server.stop() == 0
    wait_until(lambda: torch.cuda.mem_get_info()[0] >= free - (1 << 28), "it is free again")
