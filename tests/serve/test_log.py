"""The log of a whole engine: one form, whatever process a line is of."""

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, fast, instances
from serve.grpc_stub import Stub, grpc_port
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

from ringbatch.shm.host.log_handler import MOST_WAITING

FRONTEND: Final = re.compile(r"ringbatch: frontend \d+")
CHATTY: Final = """
import logging
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [])]
def predict(x):
    for number in range(int(x.max())):
        logging.warning("line %d of many", number)
    return x
"""

SILENCING: Final = """
import logging.config, os, sys
from ringbatch.engine import Tensor
logging.config.dictConfig({"version": 1})
logging.basicConfig(force=True, handlers=[logging.NullHandler()])
logging.disable()
sys.stdout = sys.stderr = object()
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
inputs = outputs = [Tensor("x", "FP32", [])]
def predict(x):
    if x.max() == 7:
        raise ValueError("out of tune")
    return x
"""


class Pipe:
    """Pipe that takes a server's output once it is read.

    Attributes:
        writing: for the server.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._read = b""

    def fill(self) -> None:
        """Fill the pipe to the last byte."""
        full = os.open(f"/proc/self/fd/{self.writing}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (1 << 12, 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(full, b"\n" * size)
        os.close(full)

    def read(self) -> None:
        """Read from now on, in a thread of its own."""
        threading.Thread(target=self._pump, daemon=True).start()

    def close(self) -> None:
        """Close the pipe, so that writers fail and the reader ends."""
        os.close(self.writing)

    @property
    def text(self) -> str:
        """Text read so far."""
        return self._read.decode()

    def _pump(self) -> None:
        while data := os.read(self._reading, 1 << 16):
            self._read += data
        os.close(self._reading)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@exhaustive
def test_every_line_of_every_process_is_json_where_that_is_wanted(
    start: Start, wait_until: Any
) -> None:
    server = start({"echo": {"path": "moody.py"}}, log_format="json", frontends=2)
    killed = server.role("frontend 0")
    os.kill(killed, signal.SIGKILL)
    # Gunicorn's own words among them.
    wait_until(lambda: f"pid:{killed}" in server.stderr, "Gunicorn says so")
    server.stop()
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    roles = {line["role"] for line in lines}
    assert {"supervisor", "frontend"} <= roles
    assert all({"time", "level", "pid", "message"} <= line.keys() for line in lines)


@exhaustive
def test_gunicorn_writes_in_the_form_of_the_others(start: Start, wait_until: Any) -> None:
    server = start({"echo": {"path": "moody.py"}})
    killed = server.role("frontend 0")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: f"pid:{killed}" in server.stderr, "Gunicorn says so")
    server.stop()
    assert all(" ringbatch " in line for line in server.stderr.splitlines()), server.stderr


def test_the_traceback_that_clients_are_referred_to_is_there_after_any_act_on_logging(
    start: Start, tmp_path: Path
) -> None:
    model = tmp_path / "silencing.py"
    model.write_text(SILENCING)
    server = start({"m": {"path": str(model)}})
    with Connection(server.port) as connection:
        failed = connection.ask(fast("m", instances(7)))
    assert failed.status == 500
    assert f"raised; batch {failed.headers['x-batch-id']}\n  Traceback" in server.stderr
    assert "  ValueError: out of tune" in server.stderr
    assert server.stop() == 0
    assert "ended with" not in server.stderr


@exhaustive
def test_a_server_serves_on_where_nobody_reads_its_log(
    start: Start, pipe: Pipe, tmp_path: Path, wait_until: Any
) -> None:
    """Processes go on though their log is not read, and their lines are there later."""
    model = tmp_path / "chatty.py"
    model.write_text(CHATTY)
    server = start(
        {"m": {"path": str(model)}}, errors=pipe.writing, access_log="all", grpc_port=0, frontends=2
    )
    wait_until(lambda: everybody_is_there(server), "all are there")
    pipe.fill()
    frontend = next(title for title in server.titles() if FRONTEND.fullmatch(title))
    ended = [server.role("worker m/0"), server.titles()[frontend], server.role("collector")]
    for pid in ended:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: pid not in server.living(), "its end")
        wait_until(lambda: everybody_is_there(server), "another is started")
        assert answered(server, 1)
    server.config.write_text(server.config.read_text() + "max_batch_size = 2\n")
    reloaded = subprocess.run(
        [*COMMAND, "reload", "--pid", str(server.pid)], capture_output=True, text=True
    )
    assert reloaded.returncode == 0, reloaded.stderr
    assert answered(server, MOST_WAITING + 100)
    with Stub(grpc_port(server)) as stub:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1]}
        assert stub.infer("m", tensor, raw_input_contents=[bytes(4)]).code == "OK"
    asked = 6000
    with Connection(server.port) as connection:
        connection.send_aside(fast("m", instances(0)) * asked)
        assert {connection.receive().status for _ in range(asked)} == {200}
    pipe.read()

    def lost(role: str, taker: str) -> Callable[[], bool]:
        words = rf" {role} \[\d+\] WARNING lines {taker} did not take: [1-9]"
        return lambda: re.search(words, pipe.text) is not None

    wait_until(lost("worker m/0", "that the log"), "the worker says what is missing")
    wait_until(lost("frontend", "on requests that the log"), "the frontend says it")
    logged = pipe.text
    assert f"line {MOST_WAITING - 100} of many" in logged
    assert all(str(pid) in logged for pid in ended), logged[-3000:]
    assert server.stop() == 0


def everybody_is_there(server: Server) -> bool:
    there = {"worker m/0", "collector", "standby", "grpc frontend 0"}
    titles = server.titles().keys()
    frontends = [title for title in titles if FRONTEND.fullmatch(title)]
    return {f"ringbatch: {title}" for title in there} <= titles and len(frontends) == 2


def answered(server: Server, value: int) -> bool:
    with Connection(server.port) as connection:
        answer = connection.ask(fast("m", instances(value)))
    return (answer.status, answer.json["predictions"]) == (200, [value])
