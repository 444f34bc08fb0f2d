"""Models without a batch dimension, served; and requests that may not be merged."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve.client import Connection, Response, fast, instances, request
from serve.server import Server, Start

HELD_MS = 60_000
SOLO = """
import numpy as np
from ringbatch.engine import InvalidInput, Tensor
inputs = [Tensor("m", "FP32", [-1, 2]), Tensor("s", "BYTES", []), Tensor("n", "INT64", [])]
outputs = [Tensor("sums", "FP32", [-1]), Tensor("s", "BYTES", [-1]), Tensor("shape", "INT64", [3])]
def predict(m, s, n):
    if n < 0:
        raise InvalidInput("n is negative")
    if n == 7:
        return m, s, n
    return {"sums": m.sum(axis=1), "s": [s.item()] * int(n), "shape": [m.ndim, s.ndim, n.ndim]}
"""
VALUE = """
def predict(instance):
    return {"was": instance}
"""
OPEN = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [-1])]
outputs = [Tensor("rows", "INT64", [])]
def predict(x):
    return np.full(len(x), len(x))
"""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("models")

    def file(name: str, source: str) -> str:
        path: Path = folder / f"{name}.py"
        path.write_text(source)
        return str(path)

    held = {"policy": "fixed", "max_latency_ms": HELD_MS}
    return start_for_module(
        {
            # A batch that is never full would wait longer than any test.
            "solo": {"path": file("solo", SOLO), "max_batch_size": 0, **held},
            "value": {"path": file("value", VALUE), "max_batch_size": 0, **held},
            "open": {"path": file("open", OPEN), "max_batch_size": 2, **held},
        }
    )


def ask(server: Server, *requests: bytes) -> list[Response]:
    with Connection(server.port) as connection:
        return [connection.ask(one) for one in requests]


def solo(rows: int, text: str, n: int) -> bytes:
    inputs = [
        {"name": "n", "datatype": "INT64", "shape": [], "data": [n]},
        {"name": "s", "datatype": "BYTES", "shape": [], "data": [text]},
        {"name": "m", "datatype": "FP32", "shape": [rows, 2], "data": [1.5] * (2 * rows)},
    ]
    return request("/v2/models/solo/infer", json.dumps({"inputs": inputs}).encode())


def outputs(answer: Response) -> dict[str, tuple[list[int], list[Any]]]:
    assert answer.status == 200, answer.body
    return {o["name"]: (o["shape"], o["data"]) for o in answer.json["outputs"]}


def test_a_model_without_a_batch_dimension_gets_and_gives_plain_tensors(server: Server) -> None:
    one, none = ask(server, solo(3, "ä", 2), solo(0, "", 0))
    assert outputs(one) == {
        "sums": ([3], [3.0] * 3),
        "s": ([2], ["ä", "ä"]),
        "shape": ([3], [2, 0, 0]),
    }
    assert outputs(none) == {"sums": ([0], []), "s": ([0], []), "shape": ([3], [2, 0, 0])}


def test_refused_and_wrong_shapes_are_named_without_the_batch(
    server: Server,
) -> None:
    refused, wrong, batched = ask(server, solo(1, "", -1), solo(2, "", 7), solo(2, "", 1))
    assert (refused.status, refused.error) == (400, "n is negative")
    assert wrong.status == 500
    assert "output 'sums' has shape [2, 2], declared is [-1]" in wrong.error
    assert batched.status == 200


def test_it_is_asked_in_binary_too(server: Server) -> None:
    data = np.arange(4, dtype="<f4").tobytes()
    inputs: list[dict[str, Any]] = [
        {
            "name": "m",
            "datatype": "FP32",
            "shape": [2, 2],
            "parameters": {"binary_data_size": len(data)},
        },
        {"name": "s", "datatype": "BYTES", "shape": [], "data": ["t"]},
        {"name": "n", "datatype": "INT64", "shape": [], "data": [1]},
    ]
    wanted = [{"name": "sums", "parameters": {"binary_data": True}}, {"name": "s"}]
    text = json.dumps({"inputs": inputs, "outputs": wanted}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    (answer,) = ask(server, request("/v2/models/solo/infer", text + data, headers=headers))
    size = int(answer.headers["inference-header-content-length"])
    first, second = json.loads(answer.body[:size])["outputs"]
    assert (first["shape"], second["shape"]) == ([2], [1])
    assert np.frombuffer(answer.body[size:], "<f4").tolist() == [1.0, 5.0]


def test_v1_instances_run_each_alone_and_are_answered_together(server: Server) -> None:
    before = server.status().models["solo"]
    rows = [{"m": [[n, n]], "s": "t", "n": 1} for n in range(4)]
    (answer,) = ask(server, fast("solo", instances(*rows)))
    assert [row["sums"] for row in answer.json["predictions"]] == [[2.0 * n] for n in range(4)]
    after = server.status().models["solo"]
    assert (after.rows - before.rows, after.requests - before.requests) == (4, 1)


def test_without_declared_inputs_it_gets_one_value_and_gives_one(server: Server) -> None:
    (answer,) = ask(server, fast("value", instances(None, [1], 10**30)))
    assert answer.json["predictions"] == [{"was": None}, {"was": [1]}, {"was": 10**30}]


def test_the_metadata_have_no_batch_dimension(server: Server) -> None:
    (answer,) = ask(server, request("/v2/models/solo", method="GET"))
    assert [tensor["shape"] for tensor in answer.json["inputs"]] == [[-1, 2], [], []]
    assert [tensor["shape"] for tensor in answer.json["outputs"]] == [[-1], [-1], [3]]


def open_request(size: int) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [1, size], "data": [0] * size}
    return request("/v2/models/open/infer", json.dumps({"inputs": [entry]}).encode())


def test_requests_that_may_not_be_merged_do_not_hold_each_other_up(server: Server) -> None:
    """A request whose shape no other has waits for company that never comes; those of another
    shape that come after it find each other, batch after batch, and are answered."""
    with Connection(server.port) as lonely:
        lonely.send(open_request(1))
        for size in (2, 3, 4):
            assert rows_of(paired(server, size)) == [2, 2]
        lonely_company = paired_with(server, lonely, 1)
        assert rows_of(lonely_company) == [2, 2]


def paired(server: Server, size: int) -> Sequence[Response]:
    with Connection(server.port) as first:
        first.send(open_request(size))
        return paired_with(server, first, size)


def paired_with(server: Server, first: Connection, size: int) -> Sequence[Response]:
    with Connection(server.port) as second:
        answer = second.ask(open_request(size))
        return [first.receive(), answer]


def rows_of(answers: Sequence[Response]) -> list[int]:
    assert len({answer.headers["x-batch-id"] for answer in answers}) == 1
    return [answer.json["outputs"][0]["data"][0] for answer in answers]
