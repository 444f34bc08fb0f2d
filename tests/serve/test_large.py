"""Large binary requests over real sockets, received into slots whatever else goes on there."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from dev_shm import takes
from serve.client import Connection, Response, request
from serve.server import Server, Start

pytestmark = takes(20)

WaitUntil = Callable[..., Any]

LIMIT = 1 << 20
ROW = 1 << 15
"""Numbers in an instance, 128 KiB."""
SOURCE = f"""
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [{ROW}])]
outputs = [Tensor("y", "FP32", [{ROW}])]
def predict(x):
    x += 1
    return x
"""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    path = tmp_path_factory.mktemp("models") / "add.py"
    path.write_text(SOURCE)
    return start_for_module(
        {"add": {"path": str(path), "max_batch_size": 4}},
        max_request_bytes=LIMIT,
        lane_bytes=4 * LIMIT,
        max_in_flight=16,
    )


def values(seed: int, rows: int = 1) -> Any:
    return np.random.default_rng(seed).random((rows, ROW), np.float32)


def post(array: Any, target: str = "/v2/models/add/infer") -> bytes:
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    size = {"binary_data_size": array.nbytes}
    entry = {"name": "x", "shape": array.shape, "datatype": "FP32", "parameters": size}
    text = json.dumps({"inputs": [entry], "outputs": [wanted]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    return request(target, text + array.tobytes(), headers=headers)


def result(answer: Response) -> Any:
    assert answer.status == 200, answer.body[:300]
    start = int(answer.headers["inference-header-content-length"])
    return np.frombuffer(answer.body[start:], "<f4").reshape(-1, ROW)


def test_every_client_gets_its_own_numbers_plus_one(server: Server) -> None:
    connections = [Connection(server.port) for _ in range(8)]
    try:
        for turn in range(3):
            for number, connection in enumerate(connections):
                connection.send_aside(post(values(8 * turn + number)))
            for number, connection in enumerate(connections):
                expected = values(8 * turn + number) + 1
                assert np.array_equal(result(connection.receive()), expected)
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("cut", [1, 200, 5000, 100_000, -1])
def test_both_ways_into_the_server_answer_a_request_in_two_pieces_alike(
    server: Server, cut: int
) -> None:
    array = values(1, rows=2)
    found = []
    for target in ("/v2/models/add/infer", "/v2/models/%61dd/infer"):
        data = post(array, target)
        with Connection(server.port) as connection:
            connection.send(data[:cut])
            connection.send_aside(data[cut:])
            found.append(result(connection.receive()))
    assert np.array_equal(*found)
    assert np.array_equal(found[0], array + 1)


def test_requests_of_all_kinds_follow_each_other_on_one_connection(server: Server) -> None:
    live = request("/v2/health/live", method="GET")
    with Connection(server.port) as connection:
        whole = b"".join(post(values(seed)) for seed in range(4)) + live + post(values(4)) + live
        connection.send_aside(whole)
        for seed in range(4):
            assert np.array_equal(result(connection.receive()), values(seed) + 1)
        assert connection.receive().json == {"live": True}
        assert np.array_equal(result(connection.receive()), values(4) + 1)
        assert connection.receive().json == {"live": True}


def test_senders_that_give_up_half_way_take_nothing_with_them(
    server: Server, wait_until: WaitUntil
) -> None:
    data = post(values(0, rows=4))
    for _ in range(3):
        leaving = [Connection(server.port) for _ in range(16)]
        for connection in leaving:
            connection.send(data[: len(data) // 2])
        with Connection(server.port) as connection:
            assert np.array_equal(result(connection.ask(post(values(1)))), values(1) + 1)
        for connection in leaving:
            connection.close()

    def all_served() -> bool:
        """Return whether three requests are answered, which take three quarters of the memory."""
        with ExitStack() as stack:
            connections = [stack.enter_context(Connection(server.port)) for _ in range(3)]
            for connection in connections:
                connection.send_aside(data)
            return all(connection.receive().status == 200 for connection in connections)

    wait_until(all_served, "their memory is free again")
