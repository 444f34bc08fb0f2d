"""The log says whose a request is, of which class, and that others had their turn before it."""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from serve.client import Connection, instances, predict_target, request
from serve.grpc_stub import Stub, grpc_port
from serve.secure import KEY, OTHER_KEY, bearer, write_private
from serve.server import Server, Start

OTHER: Final = "127.0.0.2"
MODELS: Final = {
    "slow": {"path": "slow.py", "workers": 1, "max_batch_size": 1, "timeout_s": 60},
    "matmul": {"path": "matmul.py"},
}
ROW: Final = {"fp32_contents": [1.0] * 16}
TENSOR: Final = {"name": "x", "shape": [1, 16], "datatype": "FP32", "contents": ROW}
LOG: Final[dict[str, Any]] = {"access_log": "all", "log_format": "json", "frontends": 1}
Logged = Callable[[Server, str], dict[str, Any]]


@pytest.fixture
def logged(wait_until: Callable[..., Any]) -> Logged:
    """`logged(server, id)`: the log's line of the request with that id."""

    def find(server: Server, request_id: str) -> dict[str, Any] | None:
        for line in server.stderr.rpartition("\n")[0].splitlines():
            if f'"id": "{request_id}"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        return None

    def logged(server: Server, request_id: str) -> dict[str, Any]:
        found: dict[str, Any] = wait_until(lambda: find(server, request_id), request_id)
        return found

    return logged


@pytest.fixture(scope="module")
def plain(start_for_module: Start) -> Server:
    return start_for_module(MODELS, grpc_port=0, **LOG)


def asked(request_id: str, seconds: float = 0.0, **headers: str) -> bytes:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    own = {"X-Request-Id": request_id} | lines
    return request(predict_target("slow"), instances(seconds), headers=own)


def test_lines_name_the_client_and_its_class(plain: Server, logged: Logged) -> None:
    for source, text, name, kind in (
        ("127.0.0.1", asked("plain"), "127.0.0.1", None),
        (OTHER, asked("bulk", X_Priority="bulk"), OTHER, "bulk"),
        (OTHER, asked("normal", X_Priority="normal"), OTHER, None),
    ):
        with Connection(plain.port, source) as connection:
            answer = connection.ask(text)
        line = logged(plain, answer.headers["x-request-id"])
        assert (line["account"], line.get("class")) == (name, kind)
    metadata = [("x-request-id", "grpc"), ("x-priority", "interactive")]
    with Stub(grpc_port(plain)) as stub:
        stub.infer("matmul", TENSOR, metadata=metadata)
    line = logged(plain, "grpc")
    assert (line["account"], line["class"]) == ("127.0.0.1", "interactive")


def test_lines_name_keys_and_never_have_them(
    start: Start, logged: Logged, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = write_private(tmp_path_factory.mktemp("keys") / "keys", f"{KEY}\n{OTHER_KEY}\n")
    server = start(MODELS, api_keys_file=str(keys), **LOG)
    for number, key in enumerate((KEY, OTHER_KEY)):
        with Connection(server.port) as connection:
            assert connection.ask(asked(f"key-{number}", 0.0, **bearer(key))).status == 200
        name = f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        assert logged(server, f"key-{number}")["account"] == name
        assert key not in server.stderr


def test_without_fair_shares_lines_name_nobody(start: Start, logged: Logged) -> None:
    server = start(MODELS, fair_shares=False, **LOG)
    with Connection(server.port) as connection:
        connection.ask(asked("nobody", X_Priority="bulk"))
    assert not {"account", "class"} & logged(server, "nobody").keys()


def test_a_request_that_waits_for_the_turns_of_others_is_logged_so(
    plain: Server, logged: Logged
) -> None:
    with ExitStack() as stack:

        def send(source: str, text: bytes) -> Connection:
            connection = stack.enter_context(Connection(plain.port, source))
            connection.send(text)
            return connection

        flood = [send("127.0.0.1", asked(f"flood-{n}", 0.3)) for n in range(5)]
        polite = [send(OTHER, asked(f"now-{n}", 0.2, X_Priority="interactive")) for n in range(12)]
        assert {each.receive().status for each in flood + polite} == {200}
    last, first = logged(plain, "flood-4"), logged(plain, "now-0")
    assert last["cause"] == "share", last
    assert last["queue_ms"] > 2_400
    assert first["cause"] != "share", first
    assert all(logged(plain, f"now-{n}")["cause"] != "share" for n in range(12))
