"""Calls over gRPC that their clients take back, beside others on the same connection: every other
call is answered, whatever the client is made with."""

import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from grpc_harness import INFER
from http2_harness import GREETING, data, frame, headers, settings, widen
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.server import Server, Start
from tiers import exhaustive, first_of

from ringbatch.frontend.http2.frames import CANCEL, DATA, END_STREAM, HEADERS, RST_STREAM
from ringbatch.frontend.http2.header_text import field

ECHO: Final = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "INT64", [])]
def predict(x):
    return x
"""
GO_CLIENT: Final = Path(__file__).parent / "clients" / "cancels.go"
GO_PACKAGES: Final = Path("/usr/share/gocode")
"""Debian's golang-google-grpc-dev."""
GO_S: Final = 10
CALLERS: Final = 50
OLD, NEW = 40, 120
"""Calls of a round: those that are taken back, and those that begin with them."""
LONGEST_CANCEL_S: Final = 0.0015
LONGEST_PAUSE_S: Final = 0.0003
"""Later, all of the old calls are answered."""


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    (tmp_path / "echo.py").write_text(ECHO)
    return start({"echo": {"path": str(tmp_path / "echo.py")}}, grpc_port=0)


@contextmanager
def all_well(server: Server) -> Iterator[None]:
    """The frontend is the same process afterwards, and nothing in it has failed."""
    pid = server.role("grpc frontend 0")
    yield
    assert server.role("grpc frontend 0") == pid
    assert "Traceback" not in server.stderr


def echo(number: int) -> bytes:
    tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
    return infer_request("echo", tensor, raw_input_contents=[number.to_bytes(8, "little")])


def call(stream: int) -> bytes:
    """Return a whole call over HTTP/2."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(field(name.encode(), value.encode()) for name, value in fields.items())
    request = echo(stream)
    body = b"\0" + len(request).to_bytes(4) + request
    return headers(stream, data=block) + data(stream, body, END_STREAM)


class Rounds:
    """A connection on which calls are taken back in the very write in which others begin."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._buffer = b""
        self._next = 1
        self._socket.sendall(GREETING + settings(window=1 << 20) + widen(0, 1 << 30))

    def close(self) -> None:
        self._socket.close()

    def play(self) -> None:
        """Begin `OLD` calls, then take them back with one write that begins `NEW`; return once
        all of these are answered."""
        old, new = self._numbers(OLD), self._numbers(NEW)
        self._socket.sendall(b"".join(map(call, old)))
        # Some are answered, some are on their way.
        time.sleep(random.random() * LONGEST_PAUSE_S)
        resets = [frame(RST_STREAM, 0, number, CANCEL.to_bytes(4, "big")) for number in old]
        self._socket.sendall(b"".join((*map(call, new), *resets)))
        left = set(new)
        answers = dict.fromkeys(new, b"")
        while left:
            kind, flags, number, payload = self._frame()
            if kind == DATA and number in left:
                answers[number] += payload
            elif kind == HEADERS and flags & END_STREAM and number in left:
                assert number.to_bytes(8, "little") in answers[number], payload
                left.discard(number)
            assert kind != RST_STREAM or number not in left, f"{number} is reset: {payload!r}"

    def _numbers(self, count: int) -> list[int]:
        found = list(range(self._next, self._next + 2 * count, 2))
        self._next += 2 * count
        return found

    def _frame(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self._socket.recv(1 << 16)
            assert more, "the connection was closed"
            self._buffer += more
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found


@exhaustive
@pytest.mark.parametrize("rounds", first_of([30, 1000], 1))
def test_calls_that_begin_in_the_write_that_takes_others_back_are_answered(
    server: Server, rounds: int
) -> None:
    with all_well(server):
        connection = Rounds(grpc_port(server))
        for _ in range(rounds):
            connection.play()
        connection.close()


def test_calls_of_grpcio_beside_cancelled_ones_are_answered(server: Server) -> None:
    chance = random.Random(1)
    with all_well(server), Stub(grpc_port(server)) as stub:
        for turn in range(60):
            numbers = range(turn * CALLERS, (turn + 1) * CALLERS)
            limits = {
                number: chance.random() * LONGEST_CANCEL_S if number % 4 == 0 else None
                for number in numbers
            }
            calls = {n: stub.start(echo(n), timeout_s=limits[n]) for n in numbers}
            time.sleep(chance.random() * LONGEST_CANCEL_S)
            for number in numbers:
                if number % 4 == 2:
                    calls[number].cancel()
            for number in numbers:
                if number % 2:
                    end = calls[number]()
                    assert (end.code, end.text) == ("OK", "")
                    (raw,) = end.response.raw_output_contents
                    assert raw == number.to_bytes(8, "little")


@exhaustive
def test_calls_of_grpc_go_beside_cancelled_ones_are_answered(
    server: Server, tmp_path: Path
) -> None:
    if shutil.which("go") is None or not (GO_PACKAGES / "src/google.golang.org/grpc").is_dir():
        pytest.skip("grpc-go is not installed (Debian: golang-go, golang-google-grpc-dev)")
    client = tmp_path / "cancels"
    own = {"GO111MODULE": "off", "GOPATH": str(GO_PACKAGES), "GOCACHE": str(tmp_path / "cache")}
    subprocess.run(["go", "build", "-o", client, GO_CLIENT], check=True, env=os.environ | own)
    with all_well(server):
        words = [str(client), f"127.0.0.1:{grpc_port(server)}", str(GO_S), str(CALLERS)]
        done = subprocess.run(words, input=echo(0), capture_output=True, check=True)
        found = json.loads(done.stdout)
        assert found["failed"] == {}, found
        assert found["answered"] > 100 * GO_S, found
        assert found["taken_back"] > 100 * GO_S, found
