"""Two engines at one address: each answers, one comes and one goes, and no request fails."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.client import Connection, fast, instances
from serve.load import Load
from serve.server import Server, configured
from tiers import exhaustive

from ringbatch.shm.shm_objects import remove_dead_engines

GATED = """\
import time
from pathlib import Path


def load():
    while not Path({gate!r}).exists():
        time.sleep(0.01)


def predict(instances):
    return instances
"""
WaitUntil = Callable[..., Any]


class Pair:
    """Engines at one port.

    Attributes:
        port: of all of them.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._servers: list[Server] = []

    def start(self, *, gate: Path | None = None, **more: Any) -> Server:
        """Start another engine; it loads its model once there is a file at the gate."""
        folder = self._folder / f"engine{len(self._servers)}"
        folder.mkdir()
        keys = {"port": self.port, "share_port": True, "name": self._name(), **more}
        words = configured(folder, {"echo": {"path": "gated.py", "runtime": "python"}}, **keys)
        (folder / "gated.py").write_text(GATED.format(gate=str(gate or folder)))
        self._servers.append(Server(folder, *words))
        return self._servers[-1]

    def _name(self) -> str:
        return f"pair{self.port}-{len(self._servers)}"

    def ask(self) -> int:
        """A request on a connection of its own; its status."""
        with Connection(self.port) as connection:
            return connection.ask(fast("echo", instances(1))).status

    def end(self) -> None:
        """End all engines."""
        for server in self._servers:
            server.kill()
        remove_dead_engines()


@pytest.fixture
def pair(tmp_path: Path, free_port: int) -> Iterator[Pair]:
    found = Pair(tmp_path, free_port)
    yield found
    found.end()


def answered(server: Server) -> int:
    """Return the number of requests that one engine has answered."""
    return server.status().models["echo"].requests


@exhaustive
def test_both_answer_and_one_that_ends_under_load_costs_no_request(
    pair: Pair, wait_until: WaitUntil
) -> None:
    one, other = pair.start().wait_ready(), pair.start().wait_ready()
    load = Load(one, clients=4)
    try:
        wait_until(lambda: load.answered > 200, "answers")
        for _ in range(20):
            assert pair.ask() == 200
        assert answered(one)
        assert answered(other)
        one.process.terminate()
        assert one.process.wait(60) == 0
        enough = load.answered + 100
        wait_until(lambda: load.answered > enough, "answers of the other")
        # And the first comes back.
        again = pair.start().wait_ready()
        wait_until(lambda: pair.ask() == 200 and answered(again) > 0, "answers of who came back")
    finally:
        load.stop()
    assert load.failures == []


@exhaustive
def test_nobody_waits_for_an_engine_that_loads(
    pair: Pair, tmp_path: Path, wait_until: WaitUntil
) -> None:
    pair.start().wait_ready()
    gate = tmp_path / "gate"
    loading = pair.start(gate=gate)
    wait_until(lambda: "placement" in loading.stderr, "the other to start")
    for _ in range(40):
        assert pair.ask() == 200
    gate.touch()
    loading.wait_ready()
    wait_until(lambda: pair.ask() == 200 and answered(loading) > 0, "answers of the other")


@exhaustive
def test_an_engine_that_does_not_share_its_port_is_refused_in_words(pair: Pair) -> None:
    pair.start().wait_ready()
    alone = pair.start(share_port=False)
    assert alone.process.wait(60) == 2
    assert "the port is in use" in alone.stderr


@exhaustive
def test_both_answer_over_grpc(
    pair: Pair, free_port_factory: Callable[[], int], wait_until: WaitUntil
) -> None:
    grpc = pytest.importorskip("grpc")
    grpc_port = free_port_factory()
    one, other = (pair.start(grpc_port=grpc_port).wait_ready() for _ in range(2))

    def alive() -> bool:
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            return bool(call(b"", timeout=30))

    for _ in range(10):
        assert alive()
    one.process.terminate()
    assert one.process.wait(60) == 0
    for _ in range(10):
        assert alive()
    assert json.dumps(other.status().models["echo"].ready) == "1"
