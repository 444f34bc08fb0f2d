"""Requests over every protocol that end in every way, by clients that count how.

Each protocol asks the same of the same models: `counted.py`, whose numbers say what is to happen,
and a model server that is too busy. What is special to one of them comes beside.
"""

import json
import os
import signal
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np
from model_server import Answer, Asked, answer_json, linear
from serve.client import Connection, request
from serve.grpc_stub import Stub, grpc_port
from serve.secure import KEY, OTHER_KEY, bearer
from serve.server import Server

from ringbatch.frontend import Client
from ringbatch.shm.errors import RequestError

CAP: Final = 4
MAX_REQUEST_BYTES: Final = 1 << 16
MAX_IN_FLIGHT: Final = 4
FRONTENDS: Final = 2
SPLIT: Final = 2 * CAP + 1
"""Instances of a request that takes three batches."""
TOO_MANY: Final = MAX_IN_FLIGHT * CAP + 1
"""Instances of a request that no frontend takes; a client sends it piece by piece."""
ENOUGH_OVER_HTTP: Final = FRONTENDS * MAX_IN_FLIGHT + 1
"""Requests of which one frontend at least gets more than it takes."""
HELD: Final = -1
"""The number with which the model waits until `Script.gate` is gone."""
GRPC_STATUS: Final = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 413,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
CLIENT_STATUS: Final = {
    "InvalidRequest": 400,
    "ModelNotFound": 404,
    "ModelServerAnswered": 429,
    "ModelFailed": 500,
    "Overloaded": 503,
    "DeadlineExceeded": 504,
}
NOWHERE: Final = "none"
"""Name of a model that does not exist."""
BUSY: Final = "behind"
"""The model of the server that is too busy."""

Ends = Counter[tuple[str, str, str]]
"""Counts of ended requests by model, protocol and status."""
WaitUntil = Callable[..., object]
Ask = Callable[..., int]


def too_busy(asked: Asked) -> Answer:
    """Answer as a busy model server: with the model's metadata, but no inference."""
    return answer_json({"error": "busy"}, 429) if asked.method == "POST" else linear(asked)


class Script:
    """Script of requests to a server, with counts of their ends.

    Attributes:
        ends: what clients have seen so far. What comes without an API key has no model, and over
            HTTP none of the protocols: nobody looked further.
        instances: of the model "m", in requests that were answered with 200.

    Args:
        server: with the models "m", "other" and `BUSY`.
        wait_until: the fixture.
    """

    def __init__(self, server: Server, wait_until: WaitUntil) -> None:
        self.ends: Ends = Counter()
        self.instances = 0
        self._server = server
        self._wait_until = wait_until
        self._lock = threading.Lock()
        self._gate = server.config.with_name("gate")
        self._reached = server.config.with_name("reached")

    def run(self) -> None:
        """Run the whole script."""
        self.over_v1()
        self.over_v2()
        self.over_grpc()
        self.over_the_client()

    def over_v1(self) -> None:
        """V1, on the fast lane and on Falcon's path."""
        ask = partial(self._over_http, "v1")
        self._everything(ask, ENOUGH_OVER_HTTP)
        assert ask("m", body=b" " * (MAX_REQUEST_BYTES + 1)) == 413
        assert ask("other", 1) == 200
        assert ask("%6D", 1) == 200, "which Falcon answers"
        for body in (b"{", b"[]"):
            assert ask("m", body=body) == 400
        assert ask("m", 503) == 503, "two workers died of it"
        self._retried(ask)

    def over_v2(self) -> None:
        """Send requests over V2, as JSON and binary."""
        for protocol in ("v2", "v2_binary"):
            self._everything(partial(self._over_http, protocol), ENOUGH_OVER_HTTP)
        assert self._over_http("v2", "m", body=b'{"inputs": 1}') == 400

    def over_grpc(self) -> None:
        """Send requests over gRPC."""
        with Stub(grpc_port(self._server)) as stub:
            self._everything(partial(self._over_grpc, stub), MAX_IN_FLIGHT + 1)

    def over_the_client(self) -> None:
        """Send requests from a program on this host, which needs no key."""
        with Client(self._server.pid) as client:
            ask = partial(self._over_the_client, client)
            self._everything(ask, MAX_IN_FLIGHT + 1, local=True)
            client.infer_many("m", np.arange(9, dtype=np.float32))
            self._count("m", "client", 200, 9, instances=9)

    def _everything(self, ask: Ask, enough: int, *, local: bool = False) -> None:
        for number in range(5):
            assert ask("m", number) == 200
        assert ask("m", *range(SPLIT)) == 200
        assert ask("m", 400) == 400
        assert ask(NOWHERE, 1) == 404
        assert ask("m", *range(TOO_MANY)) == (200 if local else 413)
        assert ask(BUSY, [1, 2, 3]) == 429
        assert ask("m", 500) == 500
        assert ask("m", 504, timeout_s=0.1) == 504
        if not local:
            for key in ("", OTHER_KEY):
                assert ask("m", 1, key=key) == 401
        self._overload(ask, enough)

    def _overload(self, ask: Ask, enough: int) -> None:
        """Send so many requests at once that at least one is refused, while none is answered."""
        statuses: list[int] = []
        self._gate.touch()
        with ThreadPoolExecutor(enough) as threads:
            for _ in range(enough):
                threads.submit(ask, "m", HELD).add_done_callback(
                    lambda done: statuses.append(done.result())
                )
            try:
                self._wait_until(lambda: statuses, "a request is refused")
                refused = statuses[0]
            finally:
                self._gate.unlink()
        assert refused == 503
        assert len(statuses) == enough
        assert set(statuses) == {200, 503}

    def _retried(self, ask: Ask) -> None:
        """Kill a worker with a request in it, which another worker answers."""
        self._reached.unlink(missing_ok=True)
        self._gate.touch()
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask, "m", HELD)
            self._wait_until(self._reached.exists, "the model has it")
            os.kill(self._server.role("worker m/0"), signal.SIGKILL)
            self._gate.unlink()
            assert asked.result() == 200

    def _over_http(
        self,
        protocol: str,
        model: str,
        *values: Any,
        body: bytes | None = None,
        key: str = KEY,
        timeout_s: float | None = None,
    ) -> int:
        headers = bearer(key) if key else {}
        if timeout_s is not None:
            headers["X-Request-Timeout"] = str(timeout_s)
        if protocol == "v1":
            target, text = f"/v1/models/{model}:predict", json.dumps({"instances": values}).encode()
        else:
            target = f"/v2/models/{model}/infer"
            text, own = v2_body(values, binary=protocol == "v2_binary")
            headers |= own
        with Connection(self._server.port) as connection:
            asked = request(target, text if body is None else body, headers=headers)
            status = connection.ask(asked).status
        self._count(model, "http" if status == 401 else protocol, status, instances=len(values))
        return status

    def _over_grpc(
        self,
        stub: Stub,
        model: str,
        *values: Any,
        key: str = KEY,
        timeout_s: float | None = None,
    ) -> int:
        array = np.array(values, "<f4")
        tensor = {"name": "x", "datatype": "FP32", "shape": array.shape}
        fields: dict[str, Any] = {"raw_input_contents": [array.tobytes()]}
        if timeout_s is not None:
            fields["parameters"] = {"timeout": {"int64_param": int(timeout_s * 1e6)}}
        metadata = (("authorization", f"Bearer {key}"),) if key else ()
        end = stub.infer(model, tensor, metadata=metadata, **fields)
        # What a model server's 429 is to clients of gRPC: to be tried again.
        status = 429 if "busy" in end.text else GRPC_STATUS[end.code]
        self._count(model, "grpc", status, instances=len(values))
        return status

    def _over_the_client(
        self, client: Client, model: str, *values: Any, timeout_s: float | None = None
    ) -> int:
        status = 200
        try:
            client.infer(model, np.array(values, np.float32), timeout_s=timeout_s)
        except RequestError as error:
            status = CLIENT_STATUS[type(error).__name__]
        self._count(model, "client", status, instances=len(values))
        return status

    def _count(
        self, model: str, protocol: str, status: int, requests: int = 1, *, instances: int
    ) -> None:
        name = "" if model == NOWHERE or status == 401 else urllib.parse.unquote(model)
        with self._lock:
            self.ends[name, protocol, str(status)] += requests
            if (name, status) == ("m", 200):
                self.instances += instances


def v2_body(values: tuple[Any, ...], *, binary: bool) -> tuple[bytes, dict[str, str]]:
    """A request body of V2 with one tensor, and the headers that belong to it."""
    array = np.array(values, "<f4")
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": array.shape}
    raw = b""
    if binary:
        raw = array.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
    else:
        tensor["data"] = array.ravel().tolist()
    text = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
    return text + raw, headers
