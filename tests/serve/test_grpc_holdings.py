"""Memory and connections held in a gRPC frontend by clients that begin and do not go on."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dev_shm import takes
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.http2 import NO_WINDOW, Http2
from serve.server import Start
from tiers import exhaustive, first_of

from ringbatch.frontend.grpc.health_watches import MOST_OF_CONNECTION
from ringbatch.frontend.grpc.messages import HEALTH_SERVICE, INFERENCE_SERVICE
from ringbatch.frontend.http2.outgoing import MOST_STREAMS

pytestmark = takes(30)
WaitUntil = Callable[..., Any]

METHODS = ["ModelInfer", "ModelStreamInfer"]
LARGEST_BYTES = 4 << 20
BUDGET_BYTES = 64 << 20
"""Memory that a frontend may spend on incomplete messages."""
HEAD = b"\0" + (LARGEST_BYTES - 100).to_bytes(4)
"""Prefix of a gRPC message: not compressed, and so many bytes long."""


def held_bytes(pid: int) -> int:
    """The memory of a process that no file is behind."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(found.split()[1]) << 10


@pytest.fixture
def stalled() -> Iterator[list[Http2]]:
    with ExitStack() as stack:
        connections: list[Http2] = []
        yield connections
        for connection in connections:
            stack.enter_context(connection)


@pytest.mark.parametrize("method", first_of(METHODS, 1))
def test_messages_of_stalled_streams_take_a_bounded_part_of_the_memory(
    start: Start, wait_until: WaitUntil, stalled: list[Http2], method: str
) -> None:
    server = start(
        {"echo": {"path": "moody.py"}},
        grpc_port=0,
        max_request_bytes=LARGEST_BYTES,
        client_lanes=0,
    )
    pid = server.role("grpc frontend 0")
    before = held_bytes(pid)
    sent = highest = 0
    # Each is silent while the next one sends.
    while sent < 2 * BUDGET_BYTES:
        connection = Http2(grpc_port(server))
        stalled.append(connection)
        connection.take(1.0)
        streams = [connection.begin(f"/{INFERENCE_SERVICE}/{method}") for _ in range(6)]
        for stream in streams:
            connection.send(stream, HEAD)
        poured = connection.pour(streams, LARGEST_BYTES - 200, limit_s=2.0)
        assert poured > 0
        sent += poured
        highest = max(highest, held_bytes(pid) - before)
    assert highest < 1.7 * BUDGET_BYTES, (highest, sent)
    with Stub(grpc_port(server)) as stub:
        assert stub.health().response.status == 1


WIDE = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "INT64", [])]
outputs = [Tensor("y", "FP32", [1 << 16])]
def predict(x):
    return np.zeros((len(x), 1 << 16), np.float32)
"""
ANSWER_BYTES = 1 << 18


@exhaustive
def test_answers_that_nobody_takes_take_a_bounded_part_of_the_memory(
    start: Start, wait_until: WaitUntil, stalled: list[Http2], tmp_path: Path
) -> None:
    (tmp_path / "wide.py").write_text(WIDE)
    wide = {"path": str(tmp_path / "wide.py")}
    server = start({"wide": wide}, grpc_port=0, lane_bytes=32 * ANSWER_BYTES, client_lanes=0)
    pid = server.role("grpc frontend 0")
    tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
    raw = bytes(8)
    request = infer_request("wide", tensor, raw_input_contents=[raw])
    before = held_bytes(pid)
    connection = Http2(grpc_port(server), NO_WINDOW)
    stalled.append(connection)
    with Stub(grpc_port(server)) as stub:
        for _ in range(40):
            for _ in range(6):
                stream = connection.begin(f"/{INFERENCE_SERVICE}/ModelInfer")
                connection.send(stream, b"\0" + len(request).to_bytes(4) + request)
                connection.end(stream)
            # The lane has room for few at once.
            wait_until(lambda: stub.start(request)().code == "OK", "another is answered")
    assert held_bytes(pid) - before < 120 * ANSWER_BYTES


@exhaustive
def test_a_stalled_stream_ends_after_a_time(
    start: Start, wait_until: WaitUntil, stalled: list[Http2]
) -> None:
    server = start(
        {"echo": {"path": "moody.py"}},
        grpc_port=0,
        max_request_bytes=LARGEST_BYTES,
        client_lanes=0,
        idle_timeout_s=2.0,
    )
    connection = Http2(grpc_port(server))
    stalled.append(connection)
    connection.take(1.0)
    streams = [connection.begin(f"/{INFERENCE_SERVICE}/ModelInfer") for _ in range(20)]
    for stream in streams:
        connection.send(stream, HEAD)
    assert connection.pour(streams, LARGEST_BYTES - 200, limit_s=2.0) > BUDGET_BYTES // 16
    with Stub(grpc_port(server)) as stub:
        ended = partial(wait_until, condition="it is ended", watchdog_s=90)
        ended(lambda: connection.take(0.1) is False and connection.closed)
        assert stub.health().response.status == 1


@exhaustive
def test_a_frontend_for_grpc_serves_no_more_connections_than_are_allowed(
    start: Start, wait_until: WaitUntil, stalled: list[Http2]
) -> None:
    server = start({"echo": {"path": "moody.py"}}, grpc_port=0, max_connections=3)
    stalled.extend(Http2(grpc_port(server)) for _ in range(6))
    wait_until(
        lambda: [one.take(0.1) for one in stalled] and sum(one.closed for one in stalled) == 3,
        "those that are too many are closed",
    )


@exhaustive
def test_a_connection_that_says_nothing_is_ended(start: Start, stalled: list[Http2]) -> None:
    server = start({"echo": {"path": "moody.py"}}, grpc_port=0, idle_timeout_s=1.0)
    idle = Http2(grpc_port(server))
    stalled.append(idle)
    began = time.monotonic()
    while not idle.closed:
        idle.take(1.0)
        assert time.monotonic() - began < 30


@exhaustive
def test_watches_of_anybody_hold_up_nobody(start: Start, stalled: list[Http2]) -> None:
    server = start({"echo": {"path": "moody.py"}}, grpc_port=0)
    pid = server.role("grpc frontend 0")
    path = f"/{HEALTH_SERVICE}/Watch"
    for _ in range(40):
        connection = Http2(grpc_port(server))
        stalled.append(connection)
        for _ in range(MOST_STREAMS):
            stream = connection.begin(path)
            connection.send(stream, bytes(5))
            connection.end(stream)
    for connection in stalled:
        while connection.take(0.1):
            pass
        # Those beyond the bound have been told so.
        assert len(connection.ended) == MOST_STREAMS - MOST_OF_CONNECTION
    for connection in stalled:
        connection.close()
    with Stub(grpc_port(server)) as stub:
        assert stub.health().response.status == 1
    assert server.role("grpc frontend 0") == pid
