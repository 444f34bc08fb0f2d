"""The served document against what is served, by schemathesis and by its own examples."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from serve.client import Connection, fast, instances, request
from serve.server import Server, Start
from tiers import exhaustive

SEED = 1
EXAMPLES = 10
FAST = {"Connection": "close"}
"""A head of the fast lane; and as the connection ends, Falcon never has the next."""
FALCON = {"Connection": "keep-alive, x"}
"""A head that the fast lane hands over."""

# Lengths that no invalid body happens to have: of a raw tensor every body of the right length is
# valid, whatever it looks like.
SMOOTH = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [33])]
outputs = [Tensor("y", "FP64", [2])]
def predict(x):
    return np.tanh(x[..., :2].astype("f8"))
"""
ECHO = """
from ringbatch.engine import Tensor
inputs = outputs = [
    Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", []), Tensor("u", "UINT8", [2, 2]),
    Tensor("b", "BOOL", [1]),
]
def predict(n, s, u, b):
    return n, s, u, b
"""
HALF = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("h", "FP16", [61])]
def predict(h):
    return h
"""
CONFIGURATION = """
[checks]
negative_data_rejection.expected-statuses = ["4xx"]
[[operations]]
# Its failures have status 200.
include-path = "/v1/models/agent:predict"
checks.negative_data_rejection.enabled = false
"""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("models")

    def file(name: str, source: str) -> str:
        path: Path = folder / f"{name}.py"
        path.write_text(source)
        return str(path)

    return start_for_module(
        {
            "smooth": {"path": file("smooth", SMOOTH)},
            "echo": {"path": file("echo", ECHO)},
            "half": {"path": file("half", HALF)},
            "untyped": {"path": "moody.py"},
            "agent": {"path": "moody.py", "kserve_errors": True},
            "solo": {"path": file("solo", SMOOTH), "max_batch_size": 0},
        },
        shared_memory_prefixes=["/ringbatchless_"],
    )


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    with Connection(server.port) as connection:
        answer = connection.ask(request("/openapi.json", method="GET"))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = answer.json
    return found


@pytest.mark.parametrize(("headers", "handed_over"), [(FAST, 0), (FALCON, 1)])
def test_the_headers_below_choose_the_way(
    server: Server, headers: dict[str, str], handed_over: int
) -> None:
    before = server.status().frontends["handed_over"]
    with Connection(server.port) as connection:
        target = "/v1/models/untyped:predict"
        assert connection.ask(request(target, instances(1), headers=headers)).status == 200
    assert server.status().frontends["handed_over"] - before == handed_over


# The watchdog's usual time is for tests that take no thousands of requests.
@exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("headers", [FAST, FALCON], ids=["fast", "falcon"])
def test_schemathesis_finds_nothing(
    server: Server, tmp_path: Path, headers: dict[str, str]
) -> None:
    """No status 5xx, no answer outside its schema, and nothing taken that the schema forbids.

    That all a schema allows is taken is not asked for: JSON Schema cannot say that a tensor has as
    many elements as its shape.
    """
    if importlib.util.find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed; the extra `test-exhaustive` has it")
    (tmp_path / "st.toml").write_text(CONFIGURATION)
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "st.toml", "run"),
            f"http://127.0.0.1:{server.port}/openapi.json",
            *(f"--header={name}: {value}" for name, value in headers.items()),
            f"--seed={SEED}",
            f"--max-examples={EXAMPLES}",
            "--phases=examples,coverage,fuzzing",
            "--exclude-checks=positive_data_acceptance",
            "--suppress-health-check=all",
            "--warnings=off",
            "--no-color",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"},
    )
    assert completed.returncode == 0, f"{completed.stdout[-6000:]}\n{completed.stderr[-2000:]}"
    assert "Fuzzing" in completed.stdout
    assert "failed" not in completed.stdout
    with Connection(server.port) as connection:
        assert connection.ask(fast("untyped", instances(1))).status == 200


def example_of(parameter: dict[str, Any]) -> tuple[str, Any]:
    """The name of a parameter of a query, and its example: JSON, unless it is a text."""
    if "content" in parameter:
        return parameter["name"], json.dumps(parameter["content"]["application/json"]["example"])
    return parameter["name"], parameter["example"]


def test_the_examples_of_the_document_are_answered(
    server: Server, document: dict[str, Any]
) -> None:
    asked = []
    with Connection(server.port) as connection:
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if method == "parameters":
                    continue
                body = operation.get("requestBody", {}).get("content", {})
                example = body.get("application/json", {}).get("example")
                if method == "get" and "{" not in path:
                    query = dict(map(example_of, operation.get("parameters", ())))
                    path = f"{path}?{urlencode(query, doseq=True)}" if query else path
                    answer = connection.ask(request(path, method="GET"))
                elif method == "post" and example is not None:
                    answer = connection.ask(request(path, json.dumps(example).encode()))
                    asked.append(path)
                else:
                    continue
                assert answer.status == 200, f"{method} {path}: {answer.body!r}"
                (declared, *_) = operation["responses"]["200"]["content"]
                assert answer.headers["content-type"].startswith(declared)
    assert len(asked) == 15


def test_the_page_is_served_with_examples_that_lead_back(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(b"GET /docs HTTP/1.1\r\nHost: models.test:8080\r\n\r\n")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert b"curl http://models.test:8080/v2/models/smooth/infer" in answer.body
        odd = connection.ask(b"GET /docs HTTP/1.1\r\nHost: x';rm -rf\r\n\r\n")
        assert b"rm -rf" not in odd.body
        assert b"curl http://127.0.0.1:8080/v2/models/smooth/infer" in odd.body
