"""A second HTTP server for the tests, uvicorn's, that has models behind V1 and V2.

Its models are plain functions, and it remembers every request that it was asked. What the protocols
look like is written here once more, so that ringbatch's own codecs are not held against themselves.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import uvicorn
from model_files import expected

HEADER = "inference-header-content-length"


class Asked(NamedTuple):
    """Request that the server has received."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for header, value in self.headers if header == name]

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Answer(NamedTuple):
    """An answer of the server."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)


Responder = Callable[[Asked], Answer]


@dataclass
class ModelServer:
    """The server, running.

    Attributes:
        port: of 127.0.0.1.
        asked: every request, in the order in which they were there.
        respond: function that answers, which tests replace.
        gate: predictions wait until it is set.
        under_way: number of requests that wait now.
    """

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    respond: Responder = lambda asked: linear(asked)
    gate: threading.Event = field(default_factory=threading.Event)
    under_way: int = 0

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Reset the server."""
        self.asked.clear()
        self.respond = linear
        self.gate.set()

    @property
    def predictions(self) -> list[Asked]:
        """The requests to predict, of V1 or V2."""
        return [one for one in self.asked if one.method == "POST"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, as an ASGI application."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        query = scope["query_string"].decode()
        headers = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        target = scope["raw_path"].decode() + (f"?{query}" if query else "")
        asked = Asked(scope["method"], target, headers, body)
        self.asked.append(asked)
        if asked.method == "POST":
            self.under_way += 1
            while not self.gate.is_set():
                await asyncio.sleep(0.005)
            self.under_way -= 1
        answer = self.respond(asked)
        sent = [(name.encode(), value.encode()) for name, value in answer.headers]
        sent.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": sent})
        await send({"type": "http.response.body", "body": answer.body})


@contextmanager
def running(port: int = 0) -> Iterator[ModelServer]:
    """A server on a free port or on the one given, in a thread of its own."""
    app = ModelServer()
    app.reset()
    config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        thread.join(0.01)
    app.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield app
    finally:
        app.gate.set()
        server.should_exit = True
        server.force_exit = True
        thread.join()


def answer_json(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer(json.dumps(value).encode(), status)


def linear(asked: Asked) -> Answer:
    """The linear model of `model_files`, over V1, V2 in JSON and V2 in binary."""
    path = asked.target.partition("?")[0]
    if path.endswith(":predict"):
        rows = np.array(asked.json["instances"], np.float32)
        return answer_json({"predictions": expected(rows).tolist()})
    if path == "/v2/models/linear":
        return answer_json(
            {
                "name": "linear",
                "platform": "",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
            }
        )
    if path == "/v2/models/linear/infer":
        return _infer(asked)
    return Answer(b"no such path", 404, (("content-type", "text/plain"),))


def _infer(asked: Asked) -> Answer:
    lengths = asked.values(HEADER)
    size = int(lengths[0]) if lengths else len(asked.body)
    request = json.loads(asked.body[:size])
    (entry,) = request["inputs"]
    if entry["shape"][1:] != [3]:
        return answer_json({"error": f"x has shape {entry['shape']}, and not [n, 3]"}, 400)
    if lengths:
        rows = np.frombuffer(asked.body[size:], "<f4").reshape(entry["shape"])
    else:
        rows = np.array(entry["data"], np.float32).reshape(entry["shape"])
    answers = expected(rows)
    output: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": list(answers.shape)}
    if not request.get("parameters", {}).get("binary_data_output"):
        output["data"] = answers.reshape(-1).tolist()
        return answer_json({"model_name": "linear", "outputs": [output]})
    output["parameters"] = {"binary_data_size": answers.nbytes}
    text = json.dumps({"model_name": "linear", "outputs": [output]}).encode()
    headers = (("content-type", "application/octet-stream"), (HEADER, str(len(text))))
    return Answer(text + answers.astype("<f4").tobytes(), 200, headers)
