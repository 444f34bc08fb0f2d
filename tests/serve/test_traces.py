"""Traces as an OpenTelemetry collector gets them, and what becomes of an engine whose collector
does not take any."""

import http.server
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serve.client import Connection, instances, predict_target, request
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.server import Server, Start
from tiers import exhaustive

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
SAMPLED: Final = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
UNSAMPLED: Final = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
X: Final = {"name": "x", "datatype": "FP32", "shape": [1, 16]}


class Collector:
    """OTLP collector over HTTP, on a port of its own; a context manager.

    Attributes:
        endpoint: its address.
        status: status of its answers.
        spans: spans received, in their order.
        resource: resource of the last message.
    """

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if collector.status == 200 and self.path == "/v1/traces":
                    collector.take(ExportTraceServiceRequest.FromString(data))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def handle(self) -> None:
                # Engines end beside open connections, and a collector thinks nothing of it.
                with suppress(ConnectionError):
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, message: Any) -> None:
        """Store the resource and the spans of a message."""
        for of_resource in message.resource_spans:
            self.resource = attributes(of_resource.resource)
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans

    def request_of(self, request_id: str) -> Any:
        """The span of the request with that id; None until it has come."""
        for span in self.spans:
            if attributes(span).get("ringbatch.request_id") == request_id:
                return span
        return None

    def below(self, parent: Any) -> dict[str, Any]:
        """The spans below another, by name."""
        return {
            span.name: span
            for span in self.spans
            if (span.trace_id, span.parent_span_id) == (parent.trace_id, parent.span_id)
        }


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


def context(span: Any) -> tuple[bytes, bytes]:
    return span.trace_id, span.span_id


def traces(server: Server) -> dict[str, int]:
    """Return the counts of traces in the metrics: `exported`, and dropped ones by reason."""
    with Connection(server.control_port) as connection:
        text = connection.ask(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").body.decode()
    found = re.findall(r'^ringbatch_traces_\w+?(?:\{reason="(\w+)"\})? (\d+)$', text, re.MULTILINE)
    return {reason or "exported": int(count) for reason, count in found}


def asked(model: str, request_id: str, headers: Mapping[str, str], *values: Any) -> bytes:
    named = {"X-Request-Id": request_id, **headers}
    return request(predict_target(model), instances(*values), headers=named)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture(scope="module")
def server(start_for_module: Start, collector: Collector) -> Server:
    """Server that traces no request unless the request asks for it."""
    return start_for_module(
        {
            "slow": {"path": "slow.py"},
            "pairs": {
                "path": "slow.py",
                "policy": "fixed",
                "max_latency_ms": 5000,
                "max_batch_size": 2,
            },
            "matmul": {"path": "matmul.py"},
        },
        grpc_port=0,
        control_port=0,
        trace_endpoint=collector.endpoint,
        trace_sample=0.0,
    )


@pytest.fixture
def found(collector: Collector, wait_until: Callable[..., Any]) -> Callable[[str], Any]:
    """`found(id)`: the span of the request with that id."""
    return lambda own: wait_until(lambda: collector.request_of(own), f"the span of {own}")


def test_a_request_has_a_span_below_its_clients_and_phases_below_it(
    server: Server, collector: Collector, found: Callable[[str], Any]
) -> None:
    began_ns = time.time_ns()
    with Connection(server.port) as connection:
        answer = connection.ask(asked("slow", "v1", SAMPLED, 0.3))
    ended_ns = time.time_ns()
    span = found("v1")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert (span.name, span.kind) == ("predict slow", span.SPAN_KIND_SERVER)
    assert began_ns - 50_000_000 < span.start_time_unix_nano < span.end_time_unix_nano
    assert span.end_time_unix_nano < ended_ns + 50_000_000
    own_attributes = attributes(span)
    assert own_attributes["ringbatch.batch_id"] == answer.json["batchId"]
    assert (own_attributes["http.response.status_code"], own_attributes["ringbatch.instances"]) == (
        200,
        1,
    )
    assert (own_attributes["ringbatch.reason"], own_attributes["ringbatch.attempts"]) == ("idle", 1)
    phases = collector.below(span)
    assert {"queue", "gather", "run", "scatter", "write"} <= {*phases}
    run = phases["run"]
    assert run.end_time_unix_nano - run.start_time_unix_nano >= 300_000_000
    inside = range(span.start_time_unix_nano, span.end_time_unix_nano + 1)
    assert all(
        each.start_time_unix_nano in inside and each.end_time_unix_nano in inside
        for each in phases.values()
    )
    assert collector.resource["service.name"] == "ringbatch"


def test_a_batch_links_to_its_members_and_they_to_it(
    server: Server,
    collector: Collector,
    found: Callable[[str], Any],
    wait_until: Callable[..., Any],
) -> None:
    with Connection(server.port) as one, Connection(server.port) as other:
        one.send(asked("pairs", "one", SAMPLED, 0.01))
        other.send(asked("pairs", "other", {"traceparent": f"00-{'c' * 32}-{PARENT}-01"}, 0.01))
        batch_id = one.receive().json["batchId"]
        assert other.receive().json["batchId"] == batch_id
    members = [found("one"), found("other")]
    trace = bytes.fromhex(batch_id.replace("-", ""))
    (batch,) = wait_until(
        lambda: [span for span in collector.spans if span.trace_id == trace], "the batch"
    )
    assert {context(link) for link in batch.links} == {context(span) for span in members}
    assert all([context(link) for link in span.links] == [context(batch)] for span in members)
    assert (batch.name, batch.parent_span_id) == ("batch pairs", b"")
    assert attributes(batch)["ringbatch.batch_size"] == 2
    queue, scatter = (collector.below(members[0])[name] for name in ("queue", "scatter"))
    assert batch.start_time_unix_nano == pytest.approx(queue.end_time_unix_nano, abs=1_000_000)
    assert batch.end_time_unix_nano == pytest.approx(scatter.end_time_unix_nano, abs=1_000_000)


def test_every_protocol_is_traced(server: Server, found: Callable[[str], Any]) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,16],"data":[%s]}]}' % (
        b",".join([b"1"] * 16)
    )
    with Connection(server.port) as connection:
        target = "/v2/models/matmul/infer"
        headers = {"X-Request-Id": "v2", **SAMPLED}
        assert connection.ask(request(target, body, headers=headers)).status == 200
        # Another spelling leaves the fast lane.
        headers["X-Request-Id"] = "falcon"
        target = target.replace("matmul", "mat%6dul")
        assert connection.ask(request(target, body, headers=headers)).status == 200
    data = infer_request("matmul", X, raw_input_contents=[bytes(64)])
    wrong = infer_request("nobody", X, raw_input_contents=[bytes(64)])
    with Stub(grpc_port(server)) as stub:
        for own, message in (("grpc", data), ("grpc-wrong", wrong)):
            stub.start(message, metadata=[("x-request-id", own), *SAMPLED.items()])()
    names = {"v2": "infer matmul", "falcon": "infer matmul", "grpc": "ModelInfer matmul"}
    for own, name in names.items():
        span = found(own)
        assert (span.name, span.trace_id.hex()) == (name, TRACE)
        assert span.parent_span_id.hex() == PARENT
    assert attributes(found("grpc"))["rpc.grpc.status_code"] == 0
    wrong_span = found("grpc-wrong")
    assert attributes(wrong_span)["rpc.grpc.status_code"] == 5
    assert (wrong_span.name, list(wrong_span.links)) == ("ModelInfer", [])


def test_an_unsampled_request_is_not_traced(
    server: Server, collector: Collector, found: Callable[[str], Any]
) -> None:
    with Connection(server.port) as connection:
        for own, headers in (("nothing", {}), ("no", UNSAMPLED), ("after", SAMPLED)):
            connection.ask(asked("slow", own, headers, 0))
    found("after")
    assert collector.request_of("nothing") is collector.request_of("no") is None


def test_a_failure_is_an_error(
    server: Server, collector: Collector, found: Callable[[str], Any]
) -> None:
    with Connection(server.port) as connection:
        assert connection.ask(asked("slow", "bad", SAMPLED, -1.0)).status == 500
    span = found("bad")
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert attributes(span)["http.response.status_code"] == 500


def test_a_client_that_leaves_is_traced_if_it_wants_to_be(
    server: Server,
    collector: Collector,
    found: Callable[[str], Any],
    wait_until: Callable[..., Any],
) -> None:
    for own, headers in (("gone-untraced", UNSAMPLED), ("gone", SAMPLED)):
        with Connection(server.port) as connection:
            connection.send(asked("slow", own, headers, 0.5))
        wait_until(lambda own=own: f"id={own} " in server.stderr, f"{own} has ended")
    assert attributes(found("gone"))["http.response.status_code"] == 499
    assert collector.request_of("gone-untraced") is None


@pytest.fixture
def own_collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


def traced_server(start: Start, endpoint: str, share: float) -> Server:
    models = {"slow": {"path": "slow.py"}}
    return start(models, control_port=0, trace_endpoint=endpoint, trace_sample=share)


@exhaustive
def test_a_whole_share_traces_all_and_a_stop_sends_the_last(
    start: Start, own_collector: Collector
) -> None:
    server = traced_server(start, own_collector.endpoint, 1.0)
    with Connection(server.port) as connection:
        for number in range(30):
            connection.ask(asked("slow", f"id-{number}", {}, 0))
        connection.ask(asked("slow", "no", UNSAMPLED, 0))
        connection.send(asked("slow", "last", {}, 1.0))
        server.stop()
    ids = [attributes(span).get("ringbatch.request_id") for span in own_collector.spans]
    assert sorted(filter(None, ids)) == sorted([f"id-{n}" for n in range(30)] + ["last"])
    batches = [span for span in own_collector.spans if span.name == "batch slow"]
    assert len(batches) == 31


@exhaustive
@pytest.mark.parametrize("way", ["down", "silent", "500", "503"])
def test_a_collector_that_takes_nothing_harms_nobody(
    start: Start,
    own_collector: Collector,
    free_port_factory: Callable[[], int],
    wait_until: Callable[..., Any],
    way: str,
) -> None:
    endpoint = own_collector.endpoint
    with ExitStack() as stack:
        if way == "down":
            endpoint = f"http://127.0.0.1:{free_port_factory()}"
        elif way == "silent":
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        else:
            own_collector.status = int(way)
        server = traced_server(start, endpoint, 1.0)
        with Connection(server.port) as connection:
            for number in range(20):
                assert connection.ask(asked("slow", f"id-{number}", {}, 0)).status == 200
            if way != "silent":
                wait_until(lambda: traces(server)["failed"] >= 40, "all are dropped")
                assert "traces: not all are taken at trace_endpoint, http://" in server.stderr
            assert connection.ask(asked("slow", "still", {}, 0)).status == 200
        assert traces(server)["exported"] == 0
        began_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began_s < 15
