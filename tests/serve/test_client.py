"""The client in Python beside HTTP, on a real engine: the same answers, batches and errors, answers
in parts, and what death does to it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.server import Server, Standing, Start
from tiers import exhaustive

from ringbatch.frontend import (
    AnswerCutOff,
    Client,
    EngineGone,
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    NoFreeLane,
    RequestError,
)

pytestmark = takes(20)

HELD = {"policy": "fixed", "max_latency_ms": 60_000}
MATMUL, MOODY, NAP = {"path": "matmul.py"}, {"path": "moody.py"}, {"path": "nap.py"}
WaitUntil = Callable[..., object]


@pytest.fixture(scope="module")
def standing(start_for_module: Start) -> Standing:
    models = {
        "matmul": MATMUL,
        "pair": {"path": "pair.py"},
        "echo": MOODY,
        "nap": NAP,
        "held": MATMUL | HELD | {"max_batch_size": 3},
        "parts": {"path": "streaming.py", "max_batch_size": 4},
        "telling": {"path": "telling.py", "max_batch_size": 4},
    }
    return Standing(lambda: start_for_module(models))


@pytest.fixture
def server(standing: Standing) -> Server:
    return standing.get()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.pid) as made:
        yield made


def over_http(server: Server, model: str, *values: Any) -> Any:
    with Connection(server.port) as connection:
        return connection.ask(fast(model, instances(*values))).json["predictions"]


def error_over_http(server: Server, data: bytes) -> str:
    with Connection(server.port) as connection:
        return connection.ask(data).error


class Asking(threading.Thread):
    """A thread that asks once, and what came of it."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except RequestError as error:
            self.answer = error


@contextmanager
def asleep(server: Server, client: Client, nap_s: float, wait_until: WaitUntil) -> Iterator[Asking]:
    """A thread that waits for an answer while the worker sleeps over its request."""
    model = server.status().models["nap"]
    asking = Asking(lambda: client.infer("nap", [{"nap_s": nap_s}]))
    before = sum(model.batches.values())
    wait_until(
        lambda: sum(server.status().models["nap"].batches.values()) > before,
        "the request is given to a worker",
    )
    yield asking
    asking.join()


def test_answers_are_those_over_http(server: Server, client: Client) -> None:
    x = np.arange(48, dtype=np.float32).reshape(3, 16)
    assert client.infer("matmul", x).tolist() == over_http(server, "matmul", *x.tolist())
    many = client.infer_many("matmul", x)
    assert many.outputs.tolist() == over_http(server, "matmul", *x.tolist())
    pair = client.infer(
        "pair", {"n": np.array([3, 4], np.int32), "a": np.array([[1, 2], [3, 4]], np.float32)}
    )
    rows = [
        {name: array[row].tolist() for name, array in pair.items()}
        for row in range(len(pair["twice"]))
    ]
    assert rows == over_http(server, "pair", {"a": [1, 2], "n": 3}, {"a": [3, 4], "n": 4})
    values = [{"a": [1, None]}, "x", 2.5]
    assert client.infer("echo", values) == over_http(server, "echo", *values)


def test_far_more_rows_than_slots_come_back_in_order(server: Server, client: Client) -> None:
    x = np.zeros((40_000, 16), np.float32)
    x[:, 0] = np.arange(40_000)
    expected = np.arange(40_000, dtype=np.float32)[:, None] * (np.arange(10) % 7)
    assert (client.infer("matmul", x) == expected).all()
    outputs, errors = client.infer_many("matmul", x[:5000])
    assert not errors
    assert (outputs == expected[:5000]).all()


def test_its_requests_share_a_batch_with_those_over_http(server: Server, client: Client) -> None:
    before = server.status().models["held"].batches
    x = np.ones((1, 16), np.float32)
    with Connection(server.port) as connection:
        connection.send(fast("held", instances([1] * 16)))
        future = client.infer_async("held", x)
        answer = client.infer("held", x)
        assert connection.receive().json["predictions"] == answer.tolist()
        assert future.result().tolist() == answer.tolist()
    assert server.status().models["held"].batches == before | {"full": before.get("full", 0) + 1}


def test_errors_are_those_over_http(server: Server, client: Client) -> None:
    for value, kind in (("refuse", InvalidRequest), ("raise", ModelFailed)):
        with pytest.raises(kind) as caught:
            client.infer("echo", [value])
        assert str(caught.value) == error_over_http(server, fast("echo", instances(value)))
    with pytest.raises(ModelNotFound) as unknown:
        client.infer("none", [1])
    assert str(unknown.value) == error_over_http(server, fast("none", instances(1)))
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}'
    with pytest.raises(InvalidRequest) as misfit:
        client.infer("matmul", np.zeros((1, 3), np.float32))
    assert str(misfit.value) == error_over_http(server, request("/v2/models/matmul/infer", body))


def test_each_part_is_as_an_answer(client: Client) -> None:
    assert [*client.stream("parts", [3, 3])] == [[f"{number} "] * 2 for number in range(3)]
    texts = np.array([["one three five"]], object)
    found = [*client.stream("telling", {"text": texts, "limit": np.array([[2]])})]
    assert [part["word"].tolist() for part in found] == [[[b"one"]], [[b"three"]]]
    assert [part["sizes"].tolist() for part in found] == [[[3, 3]], [[5, 5, 5]]]
    # Without a stream, they are joined.
    assert client.infer("parts", [3]) == ["0 1 2 "]


def test_leaving_the_loop_of_parts_frees_the_model(client: Client) -> None:
    for part in client.stream("parts", [[1_000_000, 0.02]]):
        assert part == ["0 "]
        break
    # The model would go on for hours.
    assert client.infer("parts", [1]) == ["0 "]


def test_a_failure_raises_behind_the_parts_before_it(client: Client) -> None:
    for first, error in (("raise", ModelFailed), ("exit", AnswerCutOff)):
        parts = client.stream("parts", [first])
        assert next(parts) == ["first "]
        with pytest.raises(error):
            next(parts)
    with pytest.raises(ModelFailed, match="ValueError"):
        next(client.stream("parts", ["refuse"]))


def test_a_thousand_parts_come_whole_and_in_order(client: Client) -> None:
    assert [*client.stream("parts", [1000])] == [[f"{number} "] for number in range(1000)]


@pytest.mark.parametrize("role", ["worker nap/0", "collector"])
def test_the_death_of_a_process_of_the_engine_costs_no_answer(
    server: Server, client: Client, wait_until: WaitUntil, role: str
) -> None:
    with asleep(server, client, 0.4, wait_until) as asking:
        os.kill(server.role(role), signal.SIGKILL)
    assert asking.answer == [{"nap_s": 0.4}]
    assert client.infer("matmul", np.zeros((1, 16), np.float32)).tolist() == [[0.0] * 10]


@contextmanager
def program(server: Server, text: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of its own that uses the client; what it says is read line by line."""
    command = [sys.executable, "-c", text, str(server.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOLDING = """
import signal, sys
from ringbatch.frontend import Client
clients = [Client(int(sys.argv[1])) for _ in range(2)]
futures = [client.infer_async("nap", [{"nap_s": 0.3}]) for client in clients]
print("holding", flush=True)
signal.pause()
"""


def test_a_killed_client_leaves_its_lane_to_the_next(server: Server) -> None:
    with program(server, HOLDING) as process:
        assert line(process) == "holding"
        with pytest.raises(NoFreeLane, match="all 2 lanes for clients are in use"):
            Client(server.pid)
        process.kill()
        process.wait()
        with Client(server.pid) as heir, Client(server.pid) as other:
            for one in (heir, other):
                assert one.infer("echo", [5]) == [5]


FORKING = """
import os, sys
from ringbatch.frontend import Client, ClientClosed
pid = int(sys.argv[1])
client = Client(pid)
future = client.infer_async("echo", [1])
assert future.result() == [1]
reading, writing = os.pipe()
child = os.fork()
if not child:
    try:
        client.infer("echo", [2])
    except ClientClosed as error:
        os.write(writing, str(error).encode())
    client.close()
    with Client(pid) as own:
        assert own.infer("echo", [3]) == [3]
    os.write(writing, b", and so it did")
    os._exit(0)
os.waitpid(child, 0)
assert client.infer("echo", [4]) == [4]
assert client.infer_async("echo", [5]).result() == [5]
print(os.read(reading, 1000).decode(), flush=True)
# Another that outlives its parent, which leaves its lane all the same.
if not os.fork():
    print(os.getpid(), flush=True)
    os.close(1)
    os.read(reading, 1)
    os._exit(0)
os.wait()
"""


def test_a_forked_child_has_no_part_in_its_parents_client(server: Server) -> None:
    with program(server, FORKING) as process:
        printed = line(process)
        assert printed == (
            f"this client belongs to process {process.pid}, from which this one was forked; "
            "make another here, and so it did"
        )
        child = int(line(process))
        try:
            process.kill()
            process.wait()
            with Client(server.pid), Client(server.pid):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


LOCKED = """
import os, signal, sys, threading
locks = []

def remembered(make):
    def made():
        lock = make()
        if sys._getframe(1).f_globals["__name__"].startswith("ringbatch."):
            locks.append(lock)
        return lock
    return made

threading.Lock, threading.RLock = remembered(threading.Lock), remembered(threading.RLock)
from ringbatch.engine import metrics
from ringbatch.frontend import Client, ClientClosed
from ringbatch.shm.memory_order import full_fence
from ringbatch.shm.host.process import log_to_stderr
import logging
log_to_stderr("parent", "info")
logging.info("the log has a thread")
counted = metrics.counter("counted", "of the test")
pid = int(sys.argv[1])
client = Client(pid)
assert client.infer_async("echo", [1]).result() == [1]
held, never = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.acquire(blocking=False)
    held.set()
    never.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(10)
    for name, act in {
        "fence": full_fence,
        "log": lambda: logging.info("in the child"),
        "count": counted.inc,
        "ask": lambda: client.infer("echo", [2]),
        "models": lambda: client.models,
        "close": client.close,
        "a client of its own": lambda: Client(pid).infer("echo", [3]),
    }.items():
        print(name, end=", ", flush=True)
        try:
            act()
        except ClientClosed:
            pass
    print(f"{len(locks)} locks", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(flush=True)
"""


def test_a_child_hangs_at_no_lock_that_was_held_at_the_fork(server: Server) -> None:
    with program(server, LOCKED) as process:
        printed = line(process)
    assert re.fullmatch(
        r"fence, log, count, ask, models, close, a client of its own, \d+ locks", printed
    )


@exhaustive
def test_a_stop_of_the_engine_leaves_nobody_waiting(start: Start, wait_until: WaitUntil) -> None:
    server = start({"nap": NAP})
    with Client(server.pid) as client:
        with asleep(server, client, 0.3, wait_until) as asking:
            assert server.stop() == 0
        assert asking.answer == [{"nap_s": 0.3}] or isinstance(asking.answer, EngineGone)
        with pytest.raises(RequestError):
            client.infer("nap", [{"nap_s": 0}])


def test_the_death_of_the_supervisor_ends_every_wait(server: Server, wait_until: WaitUntil) -> None:
    with Client(server.pid) as client:
        with asleep(server, client, 600, wait_until) as asking:
            future = client.infer_async("nap", [{"nap_s": 600}])
            os.kill(server.pid, signal.SIGKILL)
            assert isinstance(future.exception(), EngineGone)
        assert isinstance(asking.answer, EngineGone)
        with pytest.raises(EngineGone, match="the engine has stopped"):
            client.infer("nap", [{"nap_s": 0}])
