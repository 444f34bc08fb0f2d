"""Readiness state by state, over every way of asking, beside what becomes of a request."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, Response, fast, instances, request
from serve.grpc_stub import Stub
from serve.server import Server, configured
from tiers import exhaustive

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, SCHEMA
from ringbatch.shm.shm_objects import remove_dead_engines

WaitUntil = Callable[..., Any]
FreePort = Callable[[], int]

MODEL: Final = """
import time
from pathlib import Path
here = Path(__file__).parent
def load():
    while (here / "held").exists():
        time.sleep(0.01)
    if (here / "fails").exists():
        raise RuntimeError("it cannot be loaded")
def predict(values):
    return values
"""
TIMEOUT_S: Final = 40.0
"""Timeout of requests; a refusal comes long before."""
SOON_S: Final = TIMEOUT_S / 4


class Asked(threading.Thread):
    """A request, and when it is answered what came."""

    def __init__(self, port: int, data: bytes) -> None:
        super().__init__()
        self._port, self._data = port, data
        self.answer: Response | None = None
        self.start()

    def run(self) -> None:
        with Connection(self._port) as connection:
            self.answer = connection.ask(self._data)

    def end(self) -> Response:
        self.join()
        assert self.answer is not None, "the connection has ended"
        return self.answer


class Site:
    """A server with one model, whose workers the load decides, and everybody that asks for it."""

    def __init__(self, folder: Path, free_port: FreePort, wait_until: WaitUntil) -> None:
        self._folder, self._wait_until = folder, wait_until
        (folder / "m.py").write_text(MODEL)
        ports = {name: free_port() for name in ("port", "grpc_port", "control_port")}
        model = {
            "path": str(folder / "m.py"),
            "workers": [0, 1],
            "scale_down_after_s": 4.0,
            "timeout_s": TIMEOUT_S,
        }
        more = {"model_control": True, "stop_delay_s": 5.0}
        self.hold()
        self.server = Server(folder, *configured(folder, {"m": model}, **ports, **more))
        self.server.port = ports["port"]
        self._ports = ports
        self._stub = Stub(ports["grpc_port"])

    def close(self) -> None:
        self._stub.channel.close()
        self.server.kill()
        remove_dead_engines()

    def hold(self) -> None:
        (self._folder / "held").touch()

    def go_on(self) -> None:
        (self._folder / "held").unlink()

    def fail(self) -> None:
        (self._folder / "fails").touch()

    def mend(self) -> None:
        (self._folder / "fails").unlink()

    def get(self, path: str, port: str = "port") -> int:
        with Connection(self._ports[port]) as connection:
            return connection.ask(request(path, method="GET")).status

    def readiness(self) -> dict[str, bool]:
        """Return whether the server or its model is ready, by each way of asking."""
        assert self.get("/v2/health/live") == 200
        found = {
            "V1": self.get("/v1/models/m") == 200,
            "V2 model": self.get("/v2/models/m/ready") == 200,
            "V2 health": self.get("/v2/health/ready") == 200,
            "control": self.get("/v2/health/ready", "control_port") == 200,
        }
        with Connection(self._ports["port"]) as connection:
            (entry,) = [
                line
                for line in connection.ask(request("/v2/repository/index", b"{}")).json
                if line["state"] in ("READY", "UNAVAILABLE")
            ]
        found["index"] = entry["state"] == "READY"
        with Connection(self._ports["control_port"]) as connection:
            metrics = connection.ask(request("/metrics", method="GET")).body.decode()
        found["metrics"] = 'ringbatch_model_ready{model="m",version="1"} 1\n' in metrics
        name = SCHEMA.services[INFERENCE_SERVICE]["ModelReady"].request(name="m")
        found["ServerReady"] = self._stub.start(b"", "ServerReady")().response.ready
        found["ModelReady"] = self._stub.start(
            name.SerializeToString(), "ModelReady"
        )().response.ready
        found["Check"] = self._stub.health().response.status == 1
        found["Check of m"] = self._stub.health("m").response.status == 1
        assert self._stub.start(b"", "ServerLive")().response.live
        return found

    def wait_for_readiness(self, condition: str, *, ready: bool) -> None:
        """Wait until every way of asking gives this answer."""
        self._wait_until(lambda: {*self.readiness().values()} == {ready}, condition, 60)

    def ask(self) -> Asked:
        """Send a prediction."""
        return Asked(self._ports["port"], fast("m", instances(1)))

    def load(self) -> Asked:
        """The model is to be loaded, by a client."""
        return Asked(self._ports["port"], request("/v2/repository/models/m/load", b"{}"))

    def refused_s(self) -> int:
        """A request is refused at once; after how many seconds it may come again."""
        began = time.monotonic()
        answer = self.ask().end()
        assert (answer.status, "is not ready" in answer.error) == (503, True)
        assert time.monotonic() - began < SOON_S
        return int(answer.headers["retry-after"])

    def serve(self) -> None:
        """Load the model, and wait until a worker holds it."""
        self.go_on()
        self.server.wait_ready()
        assert self.ask().end().status == 200

    def rest(self) -> None:
        self._wait_until(lambda: not self.worker(), "the load leaves it without a worker", 60)

    def worker(self) -> int:
        """Return the process id of the model's worker; 0 if it has none."""
        return self.server.titles().get("ringbatch: worker m/0", 0)

    def kill(self) -> None:
        os.kill(self.worker(), signal.SIGKILL)


@pytest.fixture
def site(tmp_path: Path, free_port_factory: FreePort, wait_until: WaitUntil) -> Iterator[Site]:
    site = Site(tmp_path, free_port_factory, wait_until)
    yield site
    site.close()
    remove_dead_engines()


def test_it_is_not_ready_before_it_was_loaded_and_takes_orders_from_the_beginning(
    site: Site, wait_until: WaitUntil
) -> None:
    def answers() -> bool:
        try:
            return site.get("/v2/health/live") == site.get("/v2/health/live", "control_port") == 200
        except OSError:
            return False

    wait_until(answers, "the frontends serve")
    # Nothing is to be ready at any time, so all are asked several times.
    for _ in range(3):
        assert {*site.readiness().values()} == {False}
        assert site.refused_s() == 1
    order = site.load()
    site.serve()
    assert {*site.readiness().values()} == {True}
    assert order.end().status == 200


@exhaustive
def test_at_rest_and_waking_it_is_ready_and_where_it_cannot_wake_it_is_not(
    site: Site, wait_until: WaitUntil
) -> None:
    site.serve()
    site.rest()
    site.wait_for_readiness("it is ready at rest", ready=True)
    site.hold()
    asked = site.ask()
    wait_until(site.worker, "it wakes")
    assert {*site.readiness().values()} == {True}
    assert asked.answer is None
    site.go_on()
    assert asked.end().status == 200
    site.rest()
    site.fail()
    began = time.monotonic()
    assert site.ask().end().status == 503, "a worker was started, and there is none"
    assert time.monotonic() - began < SOON_S
    site.wait_for_readiness("it is not ready", ready=False)
    assert site.refused_s() > 1
    # No request comes any more, which might wake it.
    site.mend()
    site.wait_for_readiness("it is ready again", ready=True)
    assert site.ask().end().status == 200


@exhaustive
def test_dead_it_is_not_ready_and_requests_wait_unless_nobody_is_to_be_expected(
    site: Site, wait_until: WaitUntil
) -> None:
    site.serve()
    site.hold()
    site.kill()
    site.wait_for_readiness("it is not ready", ready=False)
    asked = site.ask()
    assert {*site.readiness().values()} == {False}
    assert asked.answer is None
    site.go_on()
    assert asked.end().status == 200
    site.wait_for_readiness("it is ready again", ready=True)
    site.fail()
    site.hold()
    site.kill()
    site.wait_for_readiness("it is not ready", ready=False)
    waits = site.ask()
    began = time.monotonic()
    site.go_on()
    assert waits.end().status == 503
    assert time.monotonic() - began < SOON_S
    assert {*site.readiness().values()} == {False}
    assert site.refused_s() >= 1
    site.mend()
    site.wait_for_readiness("it is ready again", ready=True)
    assert site.ask().end().status == 200


@exhaustive
def test_while_its_version_changes_it_is_ready_and_while_the_engine_stops_it_is_not(
    site: Site, wait_until: WaitUntil
) -> None:
    site.serve()
    site.hold()
    order = site.load()
    wait_until(lambda: len(site.server.status().models) > 1, "the next one loads beside it")
    assert {*site.readiness().values()} == {True}
    assert site.ask().end().status == 200
    site.go_on()
    assert order.end().status == 200
    assert {*site.readiness().values()} == {True}
    site.server.process.send_signal(signal.SIGTERM)
    site.wait_for_readiness("it stops", ready=False)
    assert site.ask().end().status == 200
    site.server.process.send_signal(signal.SIGTERM)
