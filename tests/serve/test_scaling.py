"""Workers of a whole server come and go with its load, and no request is lost by it."""

import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serve.client import Connection, fast, instances, request
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]

MODEL = """
import time
def predict(values):
    time.sleep(0.02)
    return values
"""
CLIENTS = 12


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    """Server with a model that may be without a worker."""
    (tmp_path / "m.py").write_text(MODEL)
    model = {
        "path": str(tmp_path / "m.py"),
        "workers": [0, 3],
        "max_batch_size": 2,
        "scale_up_after_s": 0.5,
        "scale_down_after_s": 1.0,
    }
    return start({"m": model}, frontends=1, control_port=0)


def status(server: Server) -> str:
    words = [*COMMAND, "status", "--pid", str(server.pid)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def ask(server: Server) -> int:
    with Connection(server.port) as connection:
        return connection.ask(fast("m", instances(1))).status


@exhaustive
def test_a_model_without_requests_has_no_worker_and_the_next_request_waits_for_one(
    server: Server, wait_until: WaitUntil
) -> None:
    assert ask(server) == 200
    wait_until(lambda: "0 of 0 to 3 workers ready" in status(server), "no worker", 60)
    with Connection(server.port) as connection:
        ready = connection.ask(request("/v2/models/m/ready", method="GET"))
        assert ready.status == 200
    assert ask(server) == 200


@exhaustive
def test_workers_come_and_go_with_the_load_and_every_request_is_answered(
    server: Server, wait_until: WaitUntil
) -> None:
    stop, statuses = threading.Event(), []

    def client() -> None:
        with Connection(server.port) as connection:
            while not stop.is_set():
                statuses.append(connection.ask(fast("m", instances(1))).status)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: "3 of 0 to 3 workers ready" in status(server), "all workers", 120)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    wait_until(lambda: "0 of 0 to 3 workers ready" in status(server), "no worker", 60)
    assert ask(server) == 200
    assert set(statuses) == {200}


@exhaustive
def test_a_range_changes_by_a_reload(server: Server, wait_until: WaitUntil) -> None:
    text = server.config.read_text()
    assert "workers = [0, 3]" in text
    server.config.write_text(text.replace("workers = [0, 3]", "workers = [2, 4]"))
    reload = [*COMMAND, "reload", "--pid", str(server.pid)]
    subprocess.run(reload, check=True, capture_output=True)
    assert "2 of 2 to 4 workers ready" in status(server)
    server.config.write_text(text.replace("workers = [0, 3]", "workers = 1"))
    subprocess.run(reload, check=True, capture_output=True)
    wait_until(lambda: "1 of 1 workers ready" in status(server), "one worker")
    assert ask(server) == 200


MANY = 16
ASKED = 14
"""Number of models that get requests, from one client each."""
ASKED_FOR_S = 20.0
FINDS_WORKER_S = 0.1
"""Time in which no worker can be started."""
CROWDED_S = 2.0
"""A wait that is not long, though others were short: the tests share the machine."""


def many(start: Start, tmp_path: Path, count: int) -> Server:
    """Start a server with models that have no worker, and wait until the first ones are let go."""
    (tmp_path / "m.py").write_text("def predict(values):\n    return values\n")
    model = {"path": str(tmp_path / "m.py"), "workers": [0, 1], "scale_down_after_s": 0.1}
    return start({f"m{number}": model for number in range(count)}, frontends=1, control_port=0)


def await_no_worker(server: Server, wait_until: WaitUntil, count: int) -> None:
    wait_until(lambda: status(server).count("0 of 0 to 1 workers ready") == count, "no worker", 60)


@exhaustive
def test_several_models_that_are_asked_at_once_have_their_workers_started_at_once(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    server = many(start, tmp_path, 6)
    await_no_worker(server, wait_until, 6)
    before = len(server.stderr)
    statuses: list[int] = []

    def client(number: int) -> None:
        with Connection(server.port) as connection:
            statuses.append(connection.ask(fast(f"m{number}", instances(1))).status)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    begun = server.stderr[before:].partition(": ready")[0]
    assert begun.count("a request has come") > 1


@exhaustive
def test_no_model_of_many_waits_much_longer_for_its_worker_than_the_others(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    server = many(start, tmp_path, MANY)
    await_no_worker(server, wait_until, MANY)
    until = time.monotonic() + ASKED_FOR_S
    waits_s: list[float] = []
    statuses: set[int] = set()

    def client(number: int) -> None:
        chance = random.Random(number)
        time.sleep(chance.uniform(0.0, 3.0))
        with Connection(server.port) as connection:
            while time.monotonic() < until:
                began = time.monotonic()
                statuses.add(connection.ask(fast(f"m{number}", instances(1))).status)
                waits_s.append(time.monotonic() - began)
                time.sleep(chance.uniform(2.0, 3.0))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(ASKED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {200}
    cold_s = [wait_s for wait_s in waits_s if wait_s > FINDS_WORKER_S]
    assert len(cold_s) > ASKED, "hardly any request has waited for a worker"
    assert max(cold_s) < max(3 * statistics.median(cold_s), CROWDED_S)
    await_no_worker(server, wait_until, MANY)
