"""Reports of a whole server to load balancers.

HAProxy gets one at the port of its agent-check, and clients on request in their answers.
"""

import json
import re
import signal
import socket
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

import pytest
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import grpc_port, infer_request
from serve.http2 import Http2
from serve.server import Server, Start

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE

WaitUntil = Callable[..., Any]
ASK: Final = "endpoint-load-metrics-format"
LOAD_HEADER: Final = "endpoint-load-metrics"
TRAILER: Final = b"endpoint-load-metrics-bin"
WANTED: Final = infer_request(
    "m", {"name": "x", "datatype": "FP32", "shape": [1, 16]}, raw_input_contents=[bytes(64)]
)


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    models = {"echo": {"path": "moody.py"}, "m": {"path": "matmul.py"}}
    return start_for_module(models, agent_check_port=0, grpc_port=0, stop_delay_s=5, drain_s=1)


def word(server: Server) -> str:
    """Return the server's report to HAProxy."""
    found = re.search(r"answering agent-checks on 127\.0\.0\.1:(\d+)", server.stdout)
    assert found is not None, server.stdout
    with socket.create_connection(("127.0.0.1", int(found[1])), 60) as connection:
        return connection.makefile().read()


def load_report(server: Server, *forms: str, target: str = "") -> str | None:
    """The report in the answer to a prediction, or to a GET, that asks for one."""
    lines = [f"{ASK}: {form}" for form in forms]
    data = fast("echo", instances("x"))
    if target:
        data = request(target, method="GET")
    head, _, body = data.partition(b"\r\n\r\n")
    data = b"\r\n".join([head, *(line.encode() for line in lines), b"", body])
    with Connection(server.port) as connection:
        # The second one comes with a head that is remembered.
        first, answer = connection.ask(data), connection.ask(data)
    assert (first.status, answer.status) == (200, 200)
    assert (LOAD_HEADER in first.headers) == (LOAD_HEADER in answer.headers)
    return answer.headers.get(LOAD_HEADER)


def trailers(server: Server, method: str, *sent: tuple[str, str]) -> bytes:
    """Return the trailing headers as they come, because grpcio keeps this one from its callers."""
    with Http2(grpc_port(server)) as connection:
        stream = connection.begin(f"/{INFERENCE_SERVICE}/{method}", *sent)
        connection.send(stream, b"\0" + len(WANTED).to_bytes(4) + WANTED)
        connection.end(stream)
        while stream not in connection.ended:
            connection.take(60)
        return connection.headers[-1]


@pytest.mark.parametrize("target", ["", "/v2/health/ready"])
def test_a_load_report_comes_in_the_requested_form(server: Server, target: str) -> None:
    text = load_report(server, "text", target=target)
    assert text is not None
    assert re.fullmatch(
        r"TEXT application_utilization=[\d.e-]+, .*percent=\d+\.0, .*slowdown=[\d.]+", text
    )
    found = load_report(server, "JSON", target=target)
    assert found is not None
    report = json.loads(found.removeprefix("JSON "))
    assert 1 <= report["named_metrics"]["percent"] <= 100
    binary = load_report(server, "bin", target=target)
    assert binary is not None
    assert b"answer_seconds" in b64decode(binary.removeprefix("BIN "))


@pytest.mark.parametrize("forms", [(), ("xml",), ("",), ("text", "json"), ("\xff",)])
@pytest.mark.parametrize("target", ["", "/v2/health/ready"])
def test_an_unknown_form_of_report_changes_nothing(
    server: Server, forms: tuple[str, ...], target: str
) -> None:
    assert load_report(server, *forms, target=target) is None


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_over_grpc_a_report_stands_in_the_trailing_metadata(server: Server, method: str) -> None:
    assert TRAILER in trailers(server, method, (ASK, "text"))
    for sent in ((), ((ASK, "xml"),)):
        found = trailers(server, method, *sent)
        assert b"x-request-id" in found
        assert TRAILER not in found


def test_haproxy_hears_of_a_stop_before_any_connection_ends(
    server: Server, wait_until: WaitUntil
) -> None:
    """The last test of this server."""
    assert re.fullmatch(r"up \d+%\n", word(server))
    with Connection(server.port) as connection:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: word(server) == "up 0%\n", "the share is nothing")
        answer = connection.ask(fast("echo", instances("still")))
        assert answer.json["predictions"] == ["still"]
    # A second signal ends it at once.
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 128 + signal.SIGTERM
