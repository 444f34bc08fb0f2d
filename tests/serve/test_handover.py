"""Handover: an engine takes the place of another, and clients notice nothing."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.load import Load
from serve.raw_http2 import Load as Http2Load
from serve.secure import Authority, SecureConnection
from serve.server import Server, Start, configured
from tiers import exhaustive, only

from ringbatch.engine.supervisor.order_client import ask as order
from ringbatch.frontend import Client, Draining
from ringbatch.shm.descriptors import LAYOUT_VERSION, HeaderWords
from ringbatch.shm.engines import only as only_engine
from ringbatch.shm.engines import running
from ringbatch.shm.host.control_socket import Order
from ringbatch.shm.layout import WORD
from ringbatch.shm.shm_objects import DIRECTORY, engine_and_pid

pytestmark = takes(20)

WaitUntil = Callable[..., Any]
Replace = Callable[..., Server]

X = np.ones((1, 16), np.float32)
ECHO: dict[str, Any] = {"path": "moody.py"}
MODELS = {"echo": ECHO, "m": {"path": "matmul.py"}}
WANTED = infer_request(
    "m", {"name": "x", "datatype": "FP32", "shape": [1, 16]}, raw_input_contents=[X.tobytes()]
)
SLOW = "import time\ntime.sleep(600)\n"
AGE_S = 0.5
STUBS = 3
"""Connections over gRPC, each of which leaves the old engine at an instant of its own."""
PAUSE_S = 0.005
"""Time between an answer and the next request.

Many clients without a pause take the CPUs from the engine that starts, and make a handover long
and no harder.
"""


def named(name: str) -> str:
    """Tests run beside each other, on one host."""
    return f"{name}-{os.getpid()}"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return named(f"h{abs(hash(request.node.name)) % 10**6}")


@pytest.fixture
def replace(tmp_path: Path) -> Iterator[Replace]:
    """`replace(models, *arguments, **server)`: what is to serve in the stead of another."""
    servers: list[Server] = []

    def make(models: dict[str, dict[str, Any]], *arguments: str, **keys: Any) -> Server:
        folder = tmp_path / f"next{len(servers)}"
        folder.mkdir()
        words = configured(folder, models, **keys)
        servers.append(Server(folder, *words, *arguments, command="handover"))
        return servers[-1]

    yield make
    for server in servers:
        server.destroy()


class Asking:
    """A function called again and again by a thread, until `stop`.

    Attributes:
        count: of the calls that have returned.
        failures: errors raised.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self.count = 0
        self.failures: list[Exception] = []
        self._ask = ask
        self._going = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._going:
            try:
                self._ask()
            except Exception as error:
                self.failures.append(error)
            self.count += 1
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._going = False
        self._thread.join()


def over_grpc(stub: Stub) -> None:
    end = stub.start(WANTED, patient=False)()
    if end.code != "OK":
        raise AssertionError(end)


def serves(name: str, pid: int) -> bool:
    with running(name) as found:
        return any(engine_and_pid(one.name)[1] == pid and one.ready_ns for one in found)


def agent_port(server: Server) -> int:
    found = re.search(r"answering agent-checks on 127\.0\.0\.1:(\d+)", server.stdout)
    assert found is not None, server.stdout
    return int(found[1])


def expect_up(port: int) -> None:
    """Ask as HAProxy does: it may find no engine, but none that is down or gets no requests."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        word = connection.makefile().read()
    if not re.fullmatch(r"up [1-9]\d*%\n", word):
        raise AssertionError(word)


def test_no_request_fails(start: Start, replace: Replace, name: str, wait_until: WaitUntil) -> None:
    keys = {"name": name, "frontends": 2, "grpc_port": 0, "grpc_connection_age_s": AGE_S}
    keys |= {"agent_check_port": 0, "http2": True}
    old = start(MODELS, **keys)
    with Client(name) as client, ExitStack() as stack:
        load = Load(old, clients=8, pause_s=PAUSE_S)
        http2 = Http2Load(old.port, STUBS, PAUSE_S)
        stubs = [stack.enter_context(Stub(grpc_port(old))) for _ in range(STUBS)]
        asking = [Asking(lambda: client.infer("m", X))]
        asking += [Asking(partial(over_grpc, stub)) for stub in stubs]
        asking += [Asking(partial(expect_up, agent_port(old)))]
        try:
            new = replace(MODELS, **keys).wait_ready()
            assert agent_port(new) == agent_port(old)
            assert (new.port, grpc_port(new)) == (old.port, grpc_port(old))
            wait_until(lambda: old.process.poll() is not None, "the old one has ended")

            def counts() -> list[int]:
                return [load.answered, http2.answered, *(one.count for one in asking)]

            before = counts()
            wait_until(
                lambda: all(now > then + 20 for now, then in zip(counts(), before, strict=True)),
                "all are answered by the new one",
            )
        finally:
            load.stop()
            http2.stop()
            for one in asking:
                one.stop()
    assert (load.failures, load.retried, load.refused, load.unaccepted) == ([], 0, 0, 0)
    assert (http2.failures, http2.refused) == ([], 0)
    assert [failure for one in asking for failure in one.failures] == []
    assert old.process.returncode == 0
    assert old.gone()
    assert new.stop() == 0


@exhaustive
def test_one_of_another_version_is_replaced(start: Start, replace: Replace, name: str) -> None:
    old = start(MODELS, name=name)
    load = Load(old)
    try:
        # Only processes that attach from here on read the version.
        with Path(f"{DIRECTORY}{only_engine(name)}").open("r+b", buffering=0) as segment:
            segment.seek(HeaderWords.VERSION * WORD)
            segment.write((LAYOUT_VERSION - 1).to_bytes(WORD, "little"))
        new = replace(MODELS, name=name).wait_ready()
        assert new.port == old.port
        assert old.process.wait(120) == 0
    finally:
        load.stop()
    assert (load.failures, load.refused) == ([], 0)


@exhaustive
def test_the_old_engine_answers_its_requests(start: Start, replace: Replace, name: str) -> None:
    old = start(MODELS, name=name)
    with Client(name) as client, Connection(old.port) as connection:
        future = client.infer_async("echo", ["sleep"])
        connection.send(fast("echo", instances("sleep")))
        with Connection(old.port) as idle:
            idle.send(fast("echo", instances(1)))
            assert idle.receive().status == 200
            new = replace({"echo": ECHO}, name=name).wait_ready()
            # The models of the old one took as long to load as those requests take to be answered.
            idle.send(fast("echo", instances(2)))
            late = idle.receive()
            assert (late.status, late.headers["connection"]) == (200, "close")
        assert connection.receive().json["predictions"] == ["sleep"]
        assert future.result() == ["sleep"]
        assert old.process.wait(120) == 0
        assert client.models == ("echo",)
        assert client.infer("echo", [3]) == [3]
    assert new.gone() is False


@exhaustive
def test_it_says_that_it_serves_once_the_old_one_takes_nothing(
    start: Start, replace: Replace, name: str, wait_until: WaitUntil
) -> None:
    old = start(MODELS, name=name)
    new = replace({"n": MODELS["m"]}, name=name)
    with Client(name) as client:
        wait_until(lambda: "another engine starts" in old.stderr, "the sockets to be passed on")
        os.kill(old.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: serves(name, new.pid), "the new one to serve")
            assert "serving" not in new.stdout
        finally:
            os.kill(old.pid, signal.SIGCONT)
        wait_until(lambda: "serving" in new.stdout, "it to say so")
        assert client.infer("n", X).shape == (1, 10)
    assert old.process.wait(120) == 0


@exhaustive
def test_frontends_may_be_fewer_and_models_others(
    start: Start, replace: Replace, name: str
) -> None:
    old = start(MODELS, name=name, frontends=3)
    with Client(name) as client:
        assert set(client.models) == {"echo", "m"}
        new = replace({"n": MODELS["m"]}, name=name).wait_ready()
        assert client.infer("n", X).shape == (1, 10)
        assert client.models == ("n",)
        assert old.process.wait(120) == 0
    for _ in range(20):
        # Each of the three sockets gets some of these.
        with Connection(new.port) as connection:
            connection.send(request("/v1/models", method="GET"))
            assert connection.receive().json["models"] == ["n"]


@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    only(
        {
            "broken": ("raise OSError('no weights')\n", (), "no weights"),
            "too slow": (SLOW, ("--timeout", "2"), "not ready within 2 s"),
        },
        "broken",
    ),
)
def test_where_the_new_one_never_serves_the_old_one_does(
    start: Start,
    replace: Replace,
    name: str,
    tmp_path: Path,
    source: str,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    old = start(MODELS, name=name, grpc_port=0)
    load = Load(old, clients=4, pause_s=PAUSE_S)
    try:
        (tmp_path / "other.py").write_text(source)
        keys = {"name": name, "grpc_port": 0}
        new = replace({"o": {"path": str(tmp_path / "other.py")}}, *arguments, **keys)
        assert new.process.wait(60) == 2
        assert words in new.stderr
        assert "ringbatch: nothing was handed over" in new.stderr
        assert new.gone()
        with Client(name) as client:
            assert client.infer("m", X).shape == (1, 10)
    finally:
        load.stop()
    assert (load.failures, load.retried, load.refused) == ([], 0, 0)
    assert "the engine that was to serve in this one's stead is gone" in old.stderr
    assert old.stop() == 0


@exhaustive
@pytest.mark.parametrize("secure", [False, True])
def test_the_control_address_is_answered_over_tls_by_either_that_has_it(
    start: Start, replace: Replace, name: str, tmp_path: Path, secure: bool
) -> None:
    """The new one takes its socket, whether the old one had TLS there or not."""
    authority = Authority(tmp_path)
    certificate, key = authority.certify()
    tls = {"tls_certificate": str(certificate), "tls_key": str(key)}
    asked = request("/v2/health/ready", method="GET")
    old = start(MODELS, name=name, control_port=0, **(tls if secure else {}))
    if secure:
        with SecureConnection(old.control_port, authority.client_context()) as connection:
            assert connection.ask(asked).status == 200
    else:
        with Connection(old.control_port) as connection:
            assert connection.ask(asked).status == 200
    new = replace(MODELS, name=name, control_port=old.control_port, **tls).wait_ready()
    assert old.process.wait(120) == 0
    assert new.control_port == old.control_port
    with SecureConnection(new.control_port, authority.client_context()) as connection:
        assert connection.ask(asked).status == 200


def test_there_must_be_one_to_replace(replace: Replace, name: str) -> None:
    new = replace(MODELS, name=name)
    assert new.process.wait(120) == 2
    assert f"no engine of ringbatch with the name {name} is running" in new.stderr


@exhaustive
def test_a_stop_of_the_new_one_before_it_serves_harms_nobody(
    start: Start, replace: Replace, name: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    old = start(MODELS, name=name)
    (tmp_path / "slow.py").write_text(SLOW)
    new = replace({"o": {"path": str(tmp_path / "slow.py")}}, name=name)
    wait_until(lambda: "another engine starts" in old.stderr, "the sockets are passed on")
    second = replace(MODELS, name=name)
    assert second.process.wait(120) == 2
    assert "another engine is about to take its place" in second.stderr
    segment = only_engine(name)
    refused = order(segment, Order("reload", None), print)
    assert (refused.end, refused.lines[0][:42]) == (
        "failed",
        "another engine is about to take this one's",
    )
    assert "a change is refused: another engine is about to take" in old.stderr
    assert new.stop() == 0
    wait_until(
        lambda: order(segment, Order("reload", None), print).end == "done", "it changes again"
    )
    with Connection(old.port) as connection:
        connection.send(fast("echo", instances(1)))
        assert connection.receive().status == 200


def ask_for_ever(client: Client) -> None:
    while True:
        client.infer("m", X)


@exhaustive
def test_a_client_stays_where_no_other_engine_has_the_name(start: Start, name: str) -> None:
    server = start(MODELS, name=name)
    with Client(name) as client, Connection(server.port) as connection:
        connection.send(fast("echo", instances("sleep")))
        server.process.terminate()
        with pytest.raises(Draining):
            ask_for_ever(client)
        assert set(client.models) == {"echo", "m"}
        assert connection.receive().status == 200
    assert server.process.wait(120) == 0
