"""Connections that cost: idle ones by the hundred, half-closed ones, floods, and slow readers."""

import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from dev_shm import takes
from open_files import open_files
from serve.client import (
    Connection,
    assert_serves,
    chunked,
    fast,
    instances,
    predict_target,
    request,
)
from serve.server import Server, Start
from tiers import exhaustive, only

pytestmark = takes(40)

WaitUntil = Callable[..., Any]

IDLE = int(os.environ.get("RINGBATCH_IDLE_CONNECTIONS", "1000"))
"""Set it to 10000 to see what these cost; the figures are printed."""
MAX_CONNECTIONS = IDLE + 100
CROWDED = f"too many connections are open; max_connections = {MAX_CONNECTIONS}"
MAX_REQUEST_BYTES = 1 << 20
LARGEST_EACH_BYTES = 32 << 10
"""Most memory of the frontend for a connection that does nothing."""
FLOOD = 5_000
DEAF, EACH = 8, 40
LARGE_BYTES = 500_000
LARGEST_BYTES = 4 << 20
STILL = 50
ROUNDS = 50


@pytest.fixture(scope="module", autouse=True)
def descriptors() -> Iterator[None]:
    """Enough for one end of all connections; the server sees to its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + 1000
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} open files are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Rude(Connection):
    """HTTP connection of a badly behaved client.

    Args:
        receive_bytes: how much its kernel takes that it has not read; 0 for the usual.
    """

    def __init__(self, port: int, receive_bytes: int = 0) -> None:
        super().__init__(port)
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    def fileno(self) -> int:
        """Return the socket's descriptor, for select."""
        return self._socket.fileno()

    def half_close(self) -> None:
        """Say that nothing more will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def send_if_wanted(self, data: bytes) -> None:
        """Send the bytes, or as many as are taken before the server hangs up."""
        with suppress(ConnectionError):
            self.send(data)


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    large = tmp_path_factory.mktemp("models") / "large.py"
    large.write_text(f"def predict(xs): return ['x' * {LARGE_BYTES} for x in xs]\n")
    return start_for_module(
        {
            "matmul": {"path": "matmul.py"},
            "echo": {"path": "moody.py"},
            "large": {"path": str(large), "max_batch_size": 1},
        },
        max_request_bytes=MAX_REQUEST_BYTES,
        max_connections=MAX_CONNECTIONS,
    )


@pytest.fixture(autouse=True)
def still_serves(server: Server) -> Iterator[None]:
    """Check after each test that the server still serves."""
    yield
    assert_serves(server.port)


def memory_bytes(server: Server) -> int:
    """Return the resident memory of the only frontend."""
    status = Path(f"/proc/{server.role('frontend 0')}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def files_open(server: Server) -> int:
    return len(open_files(server.role("frontend 0")))


def p50_ms(server: Server) -> float:
    """Return the median latency of a request on one connection."""
    body, times = fast("matmul", instances([0] * 16)), []
    with Connection(server.port) as connection:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert connection.ask(body).status == 200
            times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e3


def test_idle_connections_cost_little_and_those_above_the_limit_are_refused_in_words(
    server: Server, wait_until: WaitUntil, capsys: pytest.CaptureFixture[str]
) -> None:
    alone_ms, before_bytes, before_files = p50_ms(server), memory_bytes(server), files_open(server)
    with ExitStack() as stack:
        for _ in range(IDLE):
            connection = stack.enter_context(Connection(server.port))
            assert connection.ask(fast("matmul", instances([0] * 16))).status == 200
        each_bytes = (memory_bytes(server) - before_bytes) / IDLE
        with capsys.disabled():
            print(f"\n{IDLE} idle connections: {each_bytes:.0f} bytes each", end=", ")
            print(f"p50 of another {alone_ms:.2f} ms before and {p50_ms(server):.2f} ms now")
        assert each_bytes < LARGEST_EACH_BYTES
        room = MAX_CONNECTIONS - IDLE
        for _ in range(room):
            stack.enter_context(Connection(server.port))

        def turned_away() -> bool:
            with Connection(server.port) as late:
                late.send(fast("matmul", instances([0] * 16)))
                answer = late.receive()
                if answer.status == 200:
                    return False
                assert (answer.status, answer.error) == (503, CROWDED)
                assert answer.headers["connection"] == "close"
                assert "retry-after" in answer.headers
                assert late.ended()
                return True

        wait_until(turned_away, "a connection above the limit to be refused")
    wait_until(lambda: files_open(server) <= before_files + 1, "all of them to be closed")


@pytest.mark.parametrize("started", [b"", fast("echo", instances("sleep"))], ids=["idle", "busy"])
def test_a_half_closed_connection_is_closed_and_its_request_given_up(
    server: Server, wait_until: WaitUntil, started: bytes
) -> None:
    before = files_open(server)
    with Rude(server.port) as connection:
        connection.send(fast("echo", instances(1)))
        assert connection.receive().status == 200
        connection.send(started)
        connection.half_close()
        assert connection.ended()
        wait_until(lambda: files_open(server) <= before, "the connection to be closed")


@exhaustive
def test_empty_lines_do_not_keep_a_connection(start: Start) -> None:
    server = start({"matmul": {"path": "matmul.py"}}, idle_timeout_s=1)
    for begun in (b"", fast("matmul", instances([0] * 16)), request("/", method="GET")):
        with Rude(server.port) as connection:
            if begun:
                assert connection.ask(begun).status == 200
            connection.send(b"\r\n")
            assert connection.ended()


SLEEP = instances("sleep")
ESCAPED = request("/v1/models/echo%3Apredict", SLEEP)
FLOODS = {
    "falcon": (ESCAPED, request("/", method="GET") * FLOOD),
    "fast": (fast("echo", SLEEP), fast("echo", instances(1)) * (FLOOD // 4)),
    "behind-a-body": (chunked("echo", SLEEP), request("/", method="GET") * FLOOD),
}
"""A request that takes a second, and the flood that has to wait for it."""


@pytest.mark.parametrize(("first", "rest"), only(FLOODS, "falcon", "fast"))
def test_a_flood_of_pipelined_requests_is_read_no_faster_than_it_is_answered(
    server: Server, first: bytes, rest: bytes
) -> None:
    before = memory_bytes(server)
    with Connection(server.port) as connection:
        connection.send_aside(first + rest)
        assert connection.receive().json["predictions"] == ["sleep"]
        grown = memory_bytes(server) - before
        for _ in range(rest.count(b" HTTP/1.1\r\n")):
            assert connection.receive().status == 200
    assert grown < 4 << 20


def test_answers_that_nobody_reads_are_not_made_any_more(server: Server) -> None:
    before = memory_bytes(server)
    with ExitStack() as stack:
        for _ in range(DEAF):
            connection = stack.enter_context(Rude(server.port, receive_bytes=4096))
            connection.send(fast("large", instances(1)) * EACH)
        seen = [-1] * STILL
        while len({*seen[-STILL:]}) > 1 or seen[-1] <= 0:
            assert_serves(server.port)
            # Those of `assert_serves` are taken out.
            seen.append(server.status().models["large"].rows)
        grown = memory_bytes(server) - before
    assert DEAF <= seen[-1] < DEAF * EACH // 2
    assert grown < DEAF * EACH * LARGE_BYTES // 2


@pytest.mark.parametrize(
    "target",
    only({"fast": predict_target("echo"), "falcon": "/v1/models/echo%3Apredict"}, "fast"),
)
def test_large_bodies_that_do_not_end_take_no_more_memory_than_all_may(
    start: Start, wait_until: WaitUntil, target: str
) -> None:
    server = start(
        {"echo": {"path": "moody.py"}, "matmul": {"path": "matmul.py"}},
        max_request_bytes=LARGEST_BYTES,
        client_lanes=0,
    )
    before = memory_bytes(server)
    unfinished = request(target, b" " * LARGEST_BYTES)[:-1]
    fit = (64 << 20) // LARGEST_BYTES
    with ExitStack() as stack:
        clients = [stack.enter_context(Rude(server.port)) for _ in range(fit + 4)]
        for client in clients:
            client.send_if_wanted(unfinished)

        def refused() -> int:
            return len(select.select(clients, (), (), 0)[0])

        wait_until(lambda: refused() >= 4, "refusals")
        assert_serves(server.port)
        assert memory_bytes(server) - before < 2 * (64 << 20)
        assert refused() == 4


def test_an_unhandled_end_of_the_network_is_nobodys_error(server: Server) -> None:
    """A reset in the middle of an answer, an upload and a head."""
    for data in (fast("echo", instances("x" * 100_000)), fast("echo", b"x" * 50_000)[:-1], b"POS"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(data)
    assert_serves(server.port)
    assert "Traceback" not in server.stderr
