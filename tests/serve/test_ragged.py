"""Rows of unequal length in one request, over every way into a real server."""

import json
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from serve.client import Connection, Response, fast, instances, request
from serve.grpc_stub import grpc_port
from serve.server import Server, Start

from ringbatch.frontend import Client, ModelFailed

COUNTS = [3, 2, 5]
ROWS = [list(range(count)) for count in COUNTS]
PADDED = [[0, 1, 2, -1, -1], [0, 1, -1, -1, -1], [0, 1, 2, 3, 4]]
WORDS = [[[str(i), "x" * i] for i in row] for row in ROWS]
PADDED_WORDS = [words + [["-", "-"]] * (5 - len(words)) for words in WORDS]


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        {"spans": {"path": "spans.py"}, "split": {"path": "spans.py", "max_batch_size": 2}},
        grpc_port=0,
    )


@pytest.fixture(params=["spans", "split"])
def model(request: pytest.FixtureRequest) -> str:
    """Model that answers in one part, or in parts of two rows, each padded for itself."""
    name: str = request.param
    return name


def over_v2(server: Server, model: str, outputs: list[dict[str, Any]] | None = None) -> Response:
    tensor = {"name": "count", "datatype": "INT64", "shape": [3], "data": COUNTS}
    body: dict[str, Any] = {"inputs": [tensor]} | ({"outputs": outputs} if outputs else {})
    with Connection(server.port) as connection:
        return connection.ask(request(f"/v2/models/{model}/infer", json.dumps(body).encode()))


def test_v1_answers_lists_of_unequal_length(server: Server, model: str) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(fast(model, instances(*COUNTS)))
    assert answer.json["predictions"] == [
        {"numbers": row, "words": words, "bare": [0.0, 1.0]}
        for row, words in zip(ROWS, WORDS, strict=True)
    ]


def test_v2_answers_a_padded_array_with_its_padding_value(server: Server, model: str) -> None:
    numbers, words, bare = over_v2(server, model).json["outputs"]
    assert (numbers["shape"], numbers["data"]) == (
        [3, 5],
        [number for row in PADDED for number in row],
    )
    assert words["shape"] == [3, 5, 2]
    assert words["data"] == [text for row in PADDED_WORDS for pair in row for text in pair]
    assert (bare["shape"], bare["data"]) == ([3, 2], [0, 1, 0, 1, 0, 1])
    with Connection(server.port) as connection:
        metadata = connection.ask(request(f"/v2/models/{model}", method="GET")).json
    assert [output.get("parameters") for output in metadata["outputs"]] == [
        {"padding": -1},
        {"padding": "-"},
        None,
    ]


def test_binary_v2_has_the_same_array(server: Server, model: str) -> None:
    answer = over_v2(server, model, [{"name": "numbers", "parameters": {"binary_data": True}}])
    head = int(answer.headers["inference-header-content-length"])
    (numbers,) = json.loads(answer.body[:head])["outputs"]
    data = np.frombuffer(answer.body[head:], "<i4")
    assert data.reshape(numbers["shape"]).tolist() == PADDED


def test_grpc_has_the_same_array(server: Server, model: str) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        tensor = triton.InferInput("count", [3], "INT64")
        tensor.set_data_from_numpy(np.array(COUNTS))
        result = client.infer(model, [tensor])
    assert result.as_numpy("numbers").tolist() == PADDED
    words = [[[text.encode() for text in pair] for pair in row] for row in PADDED_WORDS]
    assert result.as_numpy("words").tolist() == words


def test_a_client_has_the_same_array(server: Server, model: str) -> None:
    with Client(server.pid) as client:
        answer = client.infer(model, np.array(COUNTS))
    assert answer["numbers"].tolist() == PADDED
    assert answer["bare"].tolist() == [[0.0, 1.0]] * 3


def test_rows_that_nothing_pads_are_refused_in_words(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(fast("spans", instances(1, 2)))
        assert answer.status == 500
        assert "rows of output 'bare' for one request have shapes [1], [2]" in answer.error
        assert "padding=" in answer.error
        assert connection.ask(fast("spans", instances(1))).json["predictions"] == [
            {"numbers": [0], "words": [["0", ""]], "bare": [0.0]}
        ]
    with Client(server.pid) as client, pytest.raises(ModelFailed, match="'bare'"):
        client.infer("spans", np.array([1, 2]))
