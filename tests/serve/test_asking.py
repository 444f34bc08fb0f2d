"""Models that ask what their requests say: over every protocol, in company, split and padded."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve.client import Connection, Response, request
from serve.server import COMMAND, Server, Start, configured
from tiers import exhaustive
from tritonclient import grpc as grpc_client

from ringbatch.frontend import Client
from ringbatch.shm.request_context import MOST_BYTES

HEADERS = ["x-tenant", "x-other"]


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    asking = {"headers": HEADERS, "max_batch_size": 4}
    return start_for_module(
        {
            "asker": {"path": "asker.py", "device": "cuda:7", **asking},
            "padded": {"path": "asker.py", "allowed_batch_sizes": [1, 4], **asking},
            "values": {"path": "asker_of_values.py", **asking},
            "plain": {"path": "counted.py"},
        },
        grpc_port=0,
        client_lanes=1,
    )


def ask(
    server: Server, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(request(path, json.dumps(body).encode(), headers=headers or {}))


def context(answer: Response) -> list[Any]:
    assert answer.status == 200, answer.body
    return [json.loads(row["context"]) for row in answer.json["predictions"]]


@pytest.mark.parametrize("more", [{}, {"Transfer-Encoding": "chunked"}])
def test_over_v1(server: Server, more: dict[str, str]) -> None:
    headers = {"X-Tenant": "blue", "X-Secret": "s", "X-Request-Id": "r7"}
    rows = [{"x": [n, 1]} for n in range(3)]
    body = {"instances": rows, "top_k": 5, "nested": {"a": [1, None]}}
    answer = ask(server, "/v1/models/asker:predict", body, headers)
    expected = [
        "r7",
        {"top_k": 5, "nested": {"a": [1, None]}},
        {"x-tenant": "blue"},
        True,
        False,
        "cuda:7",
    ]
    assert context(answer) == [expected] * 3
    assert [row["y"] for row in answer.json["predictions"]] == [[n, 1] for n in range(3)]


def test_rows_in_company_get_their_own_context(server: Server) -> None:
    def one(number: int) -> None:
        for path in ("asker", "padded"):
            rows = [{"x": [number, n]} for n in range(1 + number % 7)]
            body = {"instances": rows, "number": number}
            answer = ask(server, f"/v1/models/{path}:predict", body, {"x-tenant": f"t{number}"})
            assert [own[1:3] for own in context(answer)] == [
                [{"number": number}, {"x-tenant": f"t{number}"}]
            ] * len(rows)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(120)))


def test_without_declared_inputs(server: Server) -> None:
    body = {"instances": ["a", {"b": 1}, 3, 4, 5], "mode": "x"}
    answer = ask(server, "/v1/models/values:predict", body, {"x-other": "o"})
    assert answer.json["predictions"] == [
        [value, "", {"mode": "x"}, {"x-other": "o"}] for value in body["instances"]
    ]


def test_over_v2(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [6, 2], "data": list(range(12))}
    body = {"id": "42", "parameters": {"top_k": 3}, "inputs": [tensor]}
    for _ in range(2):
        answer = ask(server, "/v2/models/asker/infer", body, {"x-tenant": "blue"})
        assert answer.status == 200, answer.body
        y, words = (output["data"] for output in answer.json["outputs"])
        assert y == list(range(12))
        assert [json.loads(text)[:3] for text in words] == [
            ["42", {"top_k": 3}, {"x-tenant": "blue"}]
        ] * 6
        body = {"inputs": [tensor], "parameters": {"top_k": 3}, "id": "42"}


def test_over_v2_in_binary(server: Server) -> None:
    x = np.ones((2, 2), np.float32)
    given = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
    for number in range(3):
        text = json.dumps(
            {
                "id": f"i{number}",
                "parameters": {"n": number},
                "inputs": [given | {"parameters": {"binary_data_size": x.nbytes}}],
            }
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(text)), "x-tenant": f"t{number}"}
        with Connection(server.port) as connection:
            body = text + x.tobytes()
            answer = connection.ask(request("/v2/models/asker/infer", body, headers=headers))
        words = answer.json["outputs"][1]["data"]
        assert [json.loads(own)[:3] for own in words] == [
            [f"i{number}", {"n": number}, {"x-tenant": f"t{number}"}]
        ] * 2


@pytest.fixture
def grpc_port(server: Server) -> int:
    (line,) = [line for line in server.stdout.splitlines() if "gRPC" in line]
    return int(line.rpartition(":")[2])


def test_over_grpc(server: Server, grpc_port: int) -> None:
    x = grpc_client.InferInput("x", [2, 2], "FP32")
    x.set_data_from_numpy(np.ones((2, 2), np.float32))
    with grpc_client.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        for number in range(3):
            answer = client.infer(
                "asker",
                [x],
                request_id=f"i{number}",
                parameters={"n": number, "name": "a", "yes": True},
                headers={"x-tenant": f"t{number}"},
            )
            assert [json.loads(own)[:3] for own in answer.as_numpy("context")] == [
                [f"i{number}", {"n": number, "name": "a", "yes": True}, {"x-tenant": f"t{number}"}]
            ] * 2


def test_a_program_on_this_host_says_nothing(server: Server) -> None:
    with Client(server.pid) as client:
        answer = client.infer("asker", {"x": np.ones((5, 2), np.float32)})
        assert [json.loads(own)[:3] for own in answer["context"]] == [["", {}, {}]] * 5
        assert client.infer("values", [1, 2]) == [[1, "", {}, {}], [2, "", {}, {}]]


def test_a_parameter_of_the_wrong_type_is_one_requests_own_fault(server: Server) -> None:
    def one(number: int) -> None:
        bad = number % 5 == 0
        body = {"instances": [{"x": [1, 2]}], "top_k": "many" if bad else number}
        answer = ask(server, "/v1/models/asker:predict", body)
        if bad:
            assert (answer.status, answer.error) == (400, "top_k must be a whole number")
        else:
            assert context(answer)[0][1] == {"top_k": number}

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(100)))


def test_a_request_that_runs_again_gets_the_same_context(server: Server) -> None:
    body = {"instances": [{"x": [1, 2]}], "die": True}
    answer = ask(server, "/v1/models/asker:predict", body, {"x-tenant": "blue"})
    assert context(answer)[0][1:3] == [{"die": True}, {"x-tenant": "blue"}]
    assert "worker asker/0" in server.stderr


def test_words_that_are_too_large_are_refused(server: Server) -> None:
    large = {"top_k": 1, "text": "x" * MOST_BYTES}
    answer = ask(server, "/v1/models/asker:predict", {"instances": [{"x": [1, 2]}], **large})
    assert answer.status == 413
    assert f"a model gets at most {MOST_BYTES} of a request" in answer.error
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    answer = ask(server, "/v2/models/asker/infer", {"inputs": [tensor], "parameters": large})
    assert answer.status == 413
    answer = ask(server, "/v2/models/asker/infer", {"inputs": [tensor], "parameters": [1]})
    assert answer.status == 400


def test_request_contexts_are_no_input_to_clients(server: Server) -> None:
    with Connection(server.port) as connection:
        found = connection.ask(b"GET /v2/models/asker HTTP/1.1\r\nHost: a\r\n\r\n").json
    assert [one["name"] for one in found["inputs"]] == ["x", "times"]
    answer = ask(server, "/v1/models/plain:predict", {"instances": [1], "top_k": 1})
    assert answer.json["predictions"] == [1]


@exhaustive
def test_headers_for_a_model_that_does_not_ask_are_refused(tmp_path: Path) -> None:
    arguments = configured(tmp_path, {"m": {"path": "counted.py", "headers": ["x-tenant"]}}, port=0)
    done = subprocess.run(
        [*COMMAND, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "headers are configured, but predict does not ask what requests say" in done.stderr
