"""Events that a body asks for by its member `stream`, on a real engine and every way of HTTP."""

import json
from typing import Any

import httpx
import pytest
from serve.server import Server, Start

STREAM_INPUT = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("stream", "BOOL", [])]
outputs = [Tensor("y", "BOOL", [-1])]
def predict(stream):
    for _ in range(2):
        yield stream[:, None]
"""
TENSOR = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["2"]}
V1 = "/v1/models/pausing:predict", {"instances": [{"text": ["2"]}]}
V2 = "/v2/models/pausing/infer", {"inputs": [TENSOR]}
OWN_V1 = "/v1/models/own:predict"
OWN_V2 = "/v2/models/own/infer"


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    own = tmp_path_factory.mktemp("models") / "own.py"
    own.write_text(STREAM_INPUT)
    return start_for_module(
        {"pausing": {"path": "pausing.py"}, "own": {"path": str(own)}, "pair": {"path": "pair.py"}},
        http2=True,
    )


@pytest.fixture(params=["fast", "chunked", "http2"])
def ask(server: Server, request: pytest.FixtureRequest) -> Any:
    """Ask; the status, and the answer or the list of events."""
    way = request.param

    def asked(path: str, body: Any, **headers: str) -> tuple[int, Any]:
        versions = {"http1": way != "http2", "http2": way == "http2"}
        text = json.dumps(body).encode()
        with httpx.Client(timeout=60, trust_env=False, verify=False, **versions) as client:
            content = iter([text]) if way == "chunked" else text
            address = f"http://127.0.0.1:{server.port}{path}"
            answer = client.post(address, content=content, headers=headers)
        if answer.headers["content-type"] != "text/event-stream":
            return answer.status_code, answer.json()
        events = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        return answer.status_code, [json.loads(line.removeprefix("data: ")) for line in events]

    return asked


def numbers(events: list[Any]) -> list[Any]:
    """The numbers of events of V1 or V2."""
    return [
        event["predictions"][0] if "predictions" in event else event["outputs"][0]["data"]
        for event in events
    ]


@pytest.mark.parametrize(
    ("request_", "wish"),
    [
        (V1, {"stream": True}),
        (V2, {"stream": True}),
        (V2, {"parameters": {"stream": True}}),
    ],
    ids=["v1", "v2", "parameter"],
)
def test_true_asks_for_events(ask: Any, request_: tuple[str, Any], wish: Any) -> None:
    path, body = request_
    status, events = ask(path, body | wish)
    assert (status, numbers(events)) == (200, [[0], [1]])
    # With the header as well, it is the same.
    status, events = ask(path, body | wish, Accept="text/event-stream")
    assert (status, numbers(events)) == (200, [[0], [1]])


@pytest.mark.parametrize("wish", [{"stream": False}, {"stream": None}, {}])
def test_false_asks_for_one_answer(ask: Any, wish: Any) -> None:
    for path, body in (V1, V2):
        status, answer = ask(path, body | wish)
        assert (status, numbers([answer])) == (200, [[0, 1]])


def test_anything_else_is_refused(ask: Any) -> None:
    for path, body in (V1, V2):
        words = '`stream` of the request is "yes", not true or false'
        assert ask(path, body | {"stream": "yes"}) == (400, {"error": words})
    words = "`stream` of the request's parameters is 1, not true or false"
    path, body = V2
    assert ask(path, body | {"parameters": {"stream": 1}}) == (400, {"error": words})


def test_an_input_of_that_name_is_an_input(ask: Any) -> None:
    for body in ({"instances": [{"stream": True}]}, {"instances": [True]}):
        status, answer = ask(OWN_V1, body)
        assert (status, answer["predictions"]) == (200, [[True, True]])
    status, answer = ask(OWN_V1, {"inputs": {"stream": [True]}})
    assert (status, answer["outputs"]) == (200, [[True, True]])
    tensor = {"name": "stream", "shape": [1], "datatype": "BOOL", "data": [True]}
    status, answer = ask(OWN_V2, {"inputs": [tensor]})
    assert (status, answer["outputs"][0]["data"]) == (200, [True, True])
    status, events = ask(OWN_V2, {"inputs": [tensor], "stream": True})
    assert (status, numbers(events)) == (200, [[True], [True]])
    # Members of the generate extension are inputs, and its path says what the answer is.
    status, answer = ask("/v2/models/own/generate", {"stream": True})
    assert (status, answer["y"]) == (200, [True, True])


def test_a_model_without_parts_does_not_look_at_it(ask: Any) -> None:
    body = {"instances": [{"a": [1, 2], "n": 5}], "stream": True}
    status, answer = ask("/v1/models/pair:predict", body)
    assert (status, len(answer["predictions"])) == (200, 1)
