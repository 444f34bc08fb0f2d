"""Several model servers behind one model, in processes of their own: killed, stopped, late."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np
import pytest
from serve.client import Connection, request
from serve.server import Server, Start
from tiers import exhaustive

SLEEPER = Path(__file__).with_name("sleeper.py")
CLIENTS = 6
WaitUntil = Callable[..., object]


class Sleepers:
    """Model servers on ports that they keep.

    Attributes:
        ports: of each.
    """

    def __init__(self, stack: ExitStack, ports: Sequence[int], seconds: float = 0.02) -> None:
        self._stack = stack
        self._seconds = seconds
        self.ports = ports
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for port in self.ports:
            self.start(port)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def start(self, port: int) -> None:
        arguments = [sys.executable, str(SLEEPER), str(port), str(self._seconds)]
        process = subprocess.Popen(arguments)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self.processes[port] = process

    def kill(self, port: int) -> None:
        self.processes[port].kill()
        self.processes[port].wait()


class Clients:
    """Clients that ask one after the other, until they are told to stop.

    Attributes:
        answered: by the port of the model server.
        failures: everything else that came.
    """

    def __init__(self, port: int) -> None:
        self.answered: Counter[int] = Counter()
        self.failures: list[str] = []
        self._port = port
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with closing(Connection(self._port)) as connection:
            while not self._stop.is_set():
                self._ask(connection, number)

    def _ask(self, connection: Connection, number: int) -> None:
        text = json.dumps({"instances": [number]}).encode()
        answer = connection.ask(request("/v1/models/m:predict", text))
        if answer.status == 200:
            ((value, port),) = json.loads(answer.body)["predictions"]
            assert value == number
            self.answered[port] += 1
        else:
            self.failures.append(f"{answer.status} {answer.body!r}")


@pytest.fixture
def sleepers(free_port_factory: Callable[[], int]) -> Iterator[Sleepers]:
    with ExitStack() as stack:
        yield Sleepers(stack, [free_port_factory(), free_port_factory()])


def started(start: Start, sleepers: Sleepers, **more: object) -> Server:
    model = {"path": sleepers.urls, "workers": 2, "max_batch_size": 2} | more
    return start({"m": model}, control_port=0)


def ready(server: Server) -> tuple[int, str]:
    with closing(Connection(server.port)) as connection:
        answer = connection.ask(request("/v2/models/m/ready", method="GET"))
    return answer.status, answer.body.decode()


def downs(server: Server) -> list[bool]:
    return [one.state.down for one in server.status().models["m"].servers]


def more(clients: Clients, port: int, wait_until: WaitUntil, count: int = 10) -> None:
    """Wait for so many further answers of a server."""
    before = clients.answered[port]
    wait_until(lambda: clients.answered[port] >= before + count or clients.failures, "answers")


@exhaustive
def test_a_server_is_killed_and_comes_back_and_no_request_fails(
    start: Start, sleepers: Sleepers, wait_until: WaitUntil
) -> None:
    server = started(start, sleepers, retry="always")
    first, second = sleepers.ports
    with Clients(server.port) as clients:
        more(clients, first, wait_until)
        more(clients, second, wait_until)
        sleepers.kill(first)
        wait_until(lambda: any(downs(server)), "one is down")
        more(clients, second, wait_until)
        assert ready(server)[0] == 200
        sleepers.start(first)
        more(clients, first, wait_until)
    assert clients.failures == []
    assert f"http://127.0.0.1:{first} gets no batch: the model server cannot" in server.stderr


@exhaustive
def test_where_no_server_is_left_the_model_is_not_ready(
    start: Start, sleepers: Sleepers, wait_until: WaitUntil
) -> None:
    server = started(start, sleepers)
    assert ready(server)[0] == 200
    for port in sleepers.ports:
        sleepers.kill(port)
    wait_until(lambda: ready(server)[0] == 503, "not ready")
    assert "none of its 2 model servers answers" in ready(server)[1]
    sleepers.start(sleepers.ports[1])
    wait_until(lambda: ready(server)[0] == 200, "ready again")


@exhaustive
def test_a_server_is_stopped_and_goes_on_and_no_request_fails(
    start: Start, sleepers: Sleepers, wait_until: WaitUntil
) -> None:
    server = started(start, sleepers, retry="always")
    first, second = sleepers.ports
    with Clients(server.port) as clients:
        more(clients, first, wait_until)
        sleepers.processes[first].send_signal(signal.SIGSTOP)
        wait_until(lambda: any(downs(server)), "one is down")
        more(clients, second, wait_until, 100)
        sleepers.processes[first].send_signal(signal.SIGCONT)
        more(clients, first, wait_until)
    assert clients.failures == []


@exhaustive
def test_a_server_that_is_slow_gets_fewer_batches(
    start: Start, free_port_factory: Callable[[], int], wait_until: WaitUntil
) -> None:
    with ExitStack() as stack:
        quick = Sleepers(stack, [free_port_factory()], 0.05)
        slow = Sleepers(stack, [free_port_factory()], 0.25)
        model = {"path": quick.urls + slow.urls, "workers": 8, "max_batch_size": 1}
        server = start({"m": model})
        with Clients(server.port) as clients:
            more(clients, quick.ports[0], wait_until, 100)
        assert clients.failures == []
        few = clients.answered[slow.ports[0]]
        assert 0 < few < clients.answered[quick.ports[0]] / 1.8


@exhaustive
def test_a_worker_that_dies_holds_no_servers_batch(
    start: Start, sleepers: Sleepers, wait_until: WaitUntil
) -> None:
    server = started(start, sleepers)
    with Clients(server.port) as clients:
        for _ in range(4):
            more(clients, sleepers.ports[0], wait_until)
            pid = next(p for title, p in server.titles().items() if " worker m/" in title)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            more(clients, sleepers.ports[1], wait_until)
    assert clients.failures == []
    wait_until(
        lambda: [s.state.outstanding for s in server.status().models["m"].servers] == [0, 0],
        "nothing under way",
    )


@exhaustive
def test_an_unreachable_server_at_the_start_is_named(
    start: Start, sleepers: Sleepers, wait_until: WaitUntil
) -> None:
    first, second = sleepers.ports
    sleepers.kill(first)
    server = started(start, sleepers)
    wait_until(lambda: f"127.0.0.1:{first} gets no batch" in server.stderr, "words")
    assert ready(server)[0] == 200
    with Clients(server.port) as clients:
        more(clients, second, wait_until)
    assert clients.failures == []


@exhaustive
def test_one_engine_feeds_others_over_v2_in_binary(start: Start, wait_until: WaitUntil) -> None:
    behind = [start({"m": {"path": "matmul.py"}}) for _ in range(2)]
    urls = [f"http://127.0.0.1:{server.port}" for server in behind]
    front = start({"m": {"path": urls, "protocol": "v2", "workers": 4}})
    one = np.arange(16, dtype=np.float32)

    def ask() -> None:
        with closing(Connection(front.port)) as connection:
            for _ in range(20):
                text = json.dumps({"instances": [one.tolist()]}).encode()
                answer = connection.ask(request("/v1/models/m:predict", text))
                assert answer.status == 200, answer.body
                answers.append(json.loads(answer.body)["predictions"])

    answers: list[object] = []
    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20 * CLIENTS
    assert all(answer == answers[0] for answer in answers)
    assert all(server.status().models["m"].requests > 0 for server in behind)
    servers = front.status().models["m"].servers
    assert [server.failures for server in servers] == [0, 0]
    assert all(server.batches > 0 for server in servers)
