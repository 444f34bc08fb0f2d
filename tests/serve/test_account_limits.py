"""Limits of accounts in a whole server: one count for all frontends, over each protocol."""

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from serve.client import Connection, fast, instances, request
from serve.figures import figures
from serve.grpc_stub import Held, Stub, grpc_port
from serve.secure import KEY, OTHER_KEY, bearer, write_private
from serve.server import Server, Start, configured
from tiers import exhaustive

from ringbatch.frontend import Client, LimitReached

WaitUntil = Callable[..., Any]

OWN, OTHER, FORWARDED = "127.0.0.1", "127.0.0.2", "127.0.0.3"
MODELS: Final = {"matmul": {"path": "matmul.py"}}
ROW: Final = [1.0] * 16
REQUEST: Final = fast("matmul", instances(ROW))
TENSOR: Final = {
    "name": "x",
    "shape": [1, 16],
    "datatype": "FP32",
    "contents": {"fp32_contents": ROW},
}
RARE: Final = "the limit of 0.01 requests a second for one client is reached; try again in "


def with_lines(data: bytes, headers: dict[str, str]) -> bytes:
    """Return a request with more header lines."""
    lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items()).encode()
    return data.replace(b"\r\nHost: test", b"\r\nHost: test" + lines)


def limited(server: Server) -> dict[str, float]:
    """The refused requests in the metrics, by limit."""
    text = httpx.get(f"http://127.0.0.1:{server.control_port}/metrics", verify=False).text
    name = 'ringbatch_account_limited_total{limit="'
    lines = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    found = dict(line.split('"} ') for line in lines)
    return {limit: float(value) for limit, value in found.items() if float(value)}


@pytest.fixture(scope="module")
def rare(start_for_module: Start) -> Server:
    """Server on which an account may ask once in a hundred seconds; each test has own addresses."""
    return start_for_module(
        MODELS,
        frontends=2,
        grpc_port=0,
        control_port=0,
        trusted_proxies=[OWN],
        account_requests_per_s=0.01,
    )


def test_requests_a_second_of_an_address_over_all_frontends_and_protocols(rare: Server) -> None:
    server, before = rare, limited(rare)
    began_s = time.monotonic()

    def is_sound(retry_after_s: float) -> bool:
        """A request comes in a hundred seconds, of which some have passed."""
        return 99 - (time.monotonic() - began_s) < retry_after_s <= 100

    with ExitStack() as stack:
        # The kernel gives each connection to either frontend.
        connections = [stack.enter_context(Connection(server.port)) for _ in range(8)]
        first, *others = [connection.ask(REQUEST) for connection in connections]
        assert first.status == 200
        for answer in others:
            assert (answer.status, answer.error[: len(RARE)]) == (429, RARE)
            assert is_sound(int(answer.headers["retry-after"]))
        stub = stack.enter_context(Stub(grpc_port(server)))
        end = stub.infer("matmul", TENSOR)
        assert (end.code, end.text[: len(RARE)]) == ("RESOURCE_EXHAUSTED", RARE)
        assert stack.enter_context(Connection(server.port, OTHER)).ask(REQUEST).status == 200
        client = stack.enter_context(Client(server.pid))
        rows = np.array([ROW], np.float32)
        client.infer("matmul", rows)
        with pytest.raises(LimitReached, match=RARE) as caught:
            client.infer("matmul", rows)
        assert is_sound(caught.value.retry_after_s)
        many = client.infer_many("matmul", np.array([ROW, ROW], np.float32))
        assert [type(error) for error in many.errors.values()] == [LimitReached] * 2
    refused = 7 + 1 + 1 + 2
    assert limited(server) == {"requests_per_s": before.get("requests_per_s", 0) + refused}


def by_class(server: Server) -> Counter[tuple[str, str]]:
    """Requests refused for a limit, and requests taken, in the metrics, by class."""
    text = httpx.get(f"http://127.0.0.1:{server.control_port}/metrics", verify=False).text
    found: Counter[tuple[str, str]] = Counter()
    for one in figures(text):
        labels = {"model": "matmul", "version": "1", "class": one.labels.get("class", "")}
        if one.name == "ringbatch_model_class_refused_total":
            if one.labels == labels | {"code": "429"}:
                found["refused", labels["class"]] = int(one.value)
        elif one.name == "ringbatch_model_class_parts_total" and one.labels == labels:
            found["taken", labels["class"]] = int(one.value)
    return found


def test_refusals_are_counted_by_class(rare: Server) -> None:
    server, before = rare, by_class(rare)
    target = "/v2/models/matmul/infer"
    tensor = {**TENSOR, "data": ROW}
    del tensor["contents"]
    named = json.dumps({"inputs": [tensor], "parameters": {"priority": 1}}).encode()
    forwarded = {"X-Forwarded-For": FORWARDED}
    plain, high = with_lines(REQUEST, forwarded), request(target, named, headers=forwarded)
    with ExitStack() as stack:
        connection = stack.enter_context(Connection(server.port))
        statuses = [connection.ask(data).status for data in (plain, plain, high, high)]
        assert statuses == [200, 429, 429, 429]
        stub = stack.enter_context(Stub(grpc_port(server)))
        metadata = [("x-forwarded-for", FORWARDED), ("x-priority", "bulk")]
        end = stub.infer("matmul", TENSOR, metadata=metadata)
        assert end.code == "RESOURCE_EXHAUSTED"
        # A lane keeps its account for its next owner, and the other test has used the first lane.
        stack.enter_context(Client(server.pid))
        client = stack.enter_context(Client(server.pid, priority="bulk"))
        rows = np.array([ROW], np.float32)
        client.infer("matmul", rows)
        with pytest.raises(LimitReached):
            client.infer("matmul", rows)
        client.infer_many("matmul", np.array([ROW, ROW], np.float32))
    refused = {("refused", "interactive"): 2, ("refused", "normal"): 1, ("refused", "bulk"): 4}
    after = by_class(server)
    assert {key: after[key] - before[key] for key in refused} == refused
    assert after["taken", "bulk"] - before["taken", "bulk"] == 1


def test_requests_in_flight_of_an_address_over_all_frontends(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    held = Held(tmp_path / "held.py")
    server = start(
        {"held": {"path": held.path}}, frontends=2, grpc_port=0, control_port=0, account_in_flight=3
    )
    held.close()
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(8)]
        for number, connection in enumerate(connections):
            connection.send(fast("held", instances(number)))
        wait_until(lambda: limited(server) == {"in_flight": 5}, "the others to be refused")
        stub = stack.enter_context(Stub(grpc_port(server)))
        call = stub.start(held.request())
        assert call().code == "RESOURCE_EXHAUSTED"
        held.open()
        statuses = sorted(connection.receive().status for connection in connections)
        assert statuses == [200] * 3 + [429] * 5
        assert stub.start(held.request())().code == "OK"


def test_model_seconds_of_an_address(start: Start) -> None:
    server = start({"slow": {"path": "slow.py"}}, control_port=0, account_model_s_per_s=0.01)
    with Connection(server.port) as own, Connection(server.port, OTHER) as other:
        assert own.ask(fast("slow", instances(0.05))).status == 200
        refused = own.ask(fast("slow", instances(0.0)))
        assert refused.status == 429
        assert 3 <= int(refused.headers["retry-after"]) <= 60
        assert other.ask(fast("slow", instances(0.0))).status == 200
    assert limited(server) == {"model_s_per_s": 1}


def test_limits_of_keys_change_with_their_file(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    keys = write_private(tmp_path / "keys", f"{KEY} requests_per_s=0.01\n{OTHER_KEY}\n")
    server = start(MODELS, frontends=2, api_keys_file=str(keys))

    def asked(key: str) -> int:
        with Connection(server.port) as connection:
            return connection.ask(with_lines(REQUEST, bearer(key))).status

    assert [asked(KEY) for _ in range(3)] == [200, 429, 429]
    assert [asked(OTHER_KEY) for _ in range(3)] == [200] * 3
    # A frontend that has not read the file again knows the other key still.
    write_private(keys, f"{KEY}\n{OTHER_KEY} in_flight=9 requests_per_s=0.01\n")
    wait_until(lambda: asked(KEY) == 200, "the limit to be lifted")
    wait_until(lambda: asked(OTHER_KEY) == 429, "the other key to be limited")


@exhaustive
def test_limits_of_keys_need_fair_shares(tmp_path: Path) -> None:
    keys = write_private(tmp_path / "keys", f"{KEY} in_flight=1\n")
    own = tmp_path / "server"
    own.mkdir()
    server = Server(own, *configured(own, MODELS, fair_shares=False, api_keys_file=str(keys)))
    assert server.process.wait() == 2
    assert "limits behind a key need [server] fair_shares = true" in server.stderr
