"""Spans made of records, and their delivery to a collector of OpenTelemetry."""

import http.client
import http.server
import logging
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from segment_fixture import local_segment, spec

from ringbatch.frontend.tracing.messages import Encoder, refusal
from ringbatch.frontend.tracing.sending import Sender, pairs
from ringbatch.frontend.tracing.spans import Kind, Span, SpanContext
from ringbatch.frontend.tracing.tracing import MOST_AT_ONCE, MOST_WAITING, Trace, Tracing
from ringbatch.shm.host import background
from ringbatch.shm.host import delivering as delivering_module
from ringbatch.shm.host.delivering import Delivering, NotTakenError
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.texts import Tokens
from ringbatch.shm.traced_requests import TracedRequests

SPAN = Span(SpanContext("ab" * 16, "cd" * 8), "ef" * 8, "predict m", Kind.SERVER, 10, 30)


class Receiver:
    """Stand-in for a collector of traces that takes messages, or fails as a test says."""

    def __init__(self, *acts: Exception | str) -> None:
        self.acts = list(acts)
        self.messages: list[bytes] = []

    def send(self, data: bytes) -> str:
        self.messages.append(data)
        act = self.acts.pop(0) if self.acts else ""
        if isinstance(act, Exception):
            raise act
        return act


def delivering(
    encode: Callable[[Sequence[Span]], bytes],
    send: Callable[[bytes], str],
    clock: Callable[[], int] = lambda: 5,
) -> Delivering[Trace]:
    def deliver(traces: Sequence[Trace]) -> str:
        return send(encode([span for trace in traces for span in trace]))

    log = logging.getLogger("ringbatch.control")
    place = "trace_endpoint, http://there"
    return Delivering("traces", place, deliver, MOST_AT_ONCE, MOST_WAITING, clock, log)


def exporter_to(send: Callable[[bytes], str]) -> Delivering[Trace]:
    def encode(spans: Sequence[Span]) -> bytes:
        return b" ".join(span.name.encode() for span in spans)

    return delivering(encode, send)


def counts(exporter: Delivering[Trace]) -> tuple[int, int, int]:
    return exporter.delivered, exporter.full, exporter.failed


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering_module, "AGAIN_AFTER_S", (0.0, 0.0))


def test_traces_are_sent_together() -> None:
    receiver = Receiver()
    exporter = exporter_to(receiver.send)
    exporter.put([SPAN, SPAN._replace(name="run")])
    exporter.put([SPAN])
    exporter.deliver_waiting()
    assert receiver.messages == [b"predict m run predict m"]
    assert counts(exporter) == (2, 0, 0)


def test_traces_that_cannot_be_encoded_are_counted_and_the_next_are_sent(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    def encode(spans: Sequence[Span]) -> bytes:
        encoded.append(len(spans))
        if len(encoded) == 1:
            raise MemoryError
        return b"m"

    encoded: list[int] = []
    monkeypatch.setattr(background, "AFTER_ERROR_S", 0.0)
    monkeypatch.setattr(delivering_module, "_EVERY_S", 0.01)
    exporter = delivering(encode, Receiver().send)
    exporter.start()
    exporter.put([SPAN])
    wait_until(lambda: exporter.failed == 1, "the first to fail")
    exporter.put([SPAN])
    wait_until(lambda: exporter.delivered == 1, "the next to be sent")
    exporter.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("acts", "sent", "expected"),
    [
        ([ConnectionError("x")], 2, (1, 0, 0)),
        ([ConnectionError("x"), TimeoutError()], 3, (1, 0, 0)),
        ([ConnectionError("x")] * 3, 3, (0, 0, 1)),
        ([NotTakenError("x")], 1, (0, 0, 1)),
        ([ConnectionError("x"), NotTakenError("x")], 2, (0, 0, 1)),
        (["it refused 1 spans"], 1, (1, 0, 0)),
    ],
)
def test_only_a_retryable_failure_is_sent_again(
    acts: list[Any], sent: int, expected: tuple[int, int, int]
) -> None:
    receiver = Receiver(*acts)
    exporter = exporter_to(receiver.send)
    exporter.put([SPAN])
    exporter.deliver_waiting()
    assert (len(receiver.messages), counts(exporter)) == (sent, expected)
    exporter.put([SPAN])
    exporter.deliver_waiting()
    assert exporter.delivered == expected[0] + 1


def test_a_receiver_that_holds_everything_holds_nobody_up(
    wait_until: Callable[..., object],
) -> None:
    may, sizes = threading.Event(), list[int]()

    def send(data: bytes) -> str:
        sizes.append(data.count(b"predict"))
        may.wait()
        return ""

    exporter = exporter_to(send)
    exporter.start()
    exporter.put([SPAN])
    wait_until(lambda: sizes == [1], "the thread has the first one")
    for _ in range(MOST_WAITING + 7):
        exporter.put([SPAN])
    assert counts(exporter) == (0, 7, 0)
    assert len(exporter._waiting) == MOST_WAITING
    may.set()
    wait_until(lambda: exporter.delivered == MOST_WAITING + 1, "all are sent")
    assert max(sizes) == MOST_AT_ONCE
    exporter.close()


def test_the_end_waits_for_the_last_ones_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivering_module, "CLOSE_S", 0.05)
    may, begun = threading.Event(), threading.Event()

    def send(_data: bytes) -> str:
        begun.set()
        may.wait()
        return ""

    stuck, willing = exporter_to(send), exporter_to(Receiver().send)
    for exporter in (stuck, willing):
        exporter.start()
        exporter.put([SPAN])
    assert begun.wait(60)
    stuck.put([SPAN])
    stuck.close()
    monkeypatch.setattr(delivering_module, "CLOSE_S", 60)
    willing.close()
    assert (stuck.delivered, willing.delivered) == (0, 1)
    assert "traces: 1 are not sent at the end" in caplog.text
    may.set()


@pytest.mark.usefixtures("quick")
def test_the_log_has_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = [0]
    receiver = Receiver(*[NotTakenError("it answers with status 401")] * 3)
    exporter = delivering(lambda _: b"", receiver.send, lambda: now_ns[0])
    for at_s in (0, 59, 60):
        now_ns[0] = at_s * 1_000_000_000
        exporter.put([SPAN])
        exporter.deliver_waiting()
    assert caplog.messages == [
        "traces: not all are taken at trace_endpoint, http://there: it answers with status 401; "
        f"0 were sent and {dropped} dropped"
        for dropped in (1, 3)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("authorization=Bearer%20x%3D, b = c=d ,", {"authorization": "Bearer x=", "b": "c=d"}),
        ("authorization=Basic%20dXNlcg==%0A,b=%09c", {"authorization": "Basic dXNlcg==", "b": "c"}),
        ("nonsense", {}),
    ],
)
def test_variables_of_opentelemetry(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


class Collector(BaseHTTPRequestHandler):
    """Collector of traces that answers as `replies_with` tells and keeps the messages."""

    protocol_version = "HTTP/1.1"
    replies_with: ClassVar[tuple[int, bytes]] = (200, b"")
    came: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.came.append((self.path, self.headers["x-key"], body))
        status, answer = self.replies_with
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Collector.replies_with, Collector.came = (200, b""), []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/otlp/"
        server.shutdown()


@pytest.fixture
def sender(endpoint: str) -> Iterator[Sender]:
    sender = Sender(endpoint, {"x-key": "k"})
    yield sender
    sender._connection.close()


def test_a_message_is_sent_where_otlp_wants_it(sender: Sender) -> None:
    assert sender.send(b"one") == sender.send(b"two") == ""
    assert Collector.came == [("/otlp/v1/traces", "k", data) for data in (b"one", b"two")]


PARTLY = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="too old")
).SerializeToString()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, PARTLY, "it refused 3 spans: too old"),
        (202, b"", ""),
        (200, b"\xff\xff", "its answer is not OTLP's"),
        (200, b"<" * (1 << 17), "its answer is not OTLP's"),
        (400, b"", NotTakenError("it answers with status 400")),
        (500, b"", NotTakenError("it answers with status 500")),
        (301, b"", NotTakenError("it answers with status 301")),
        (429, b"", ConnectionError("it answers with status 429")),
        (503, b"x", ConnectionError("it answers with status 503")),
    ],
)
def test_an_answer_of_a_trace_collector_has_its_meaning(
    sender: Sender, status: int, body: bytes, expected: str | Exception
) -> None:
    Collector.replies_with = status, body
    for _ in range(2):
        try:
            found: str | Exception = sender.send(b"x")
        except (OSError, NotTakenError) as error:
            found = error
        assert repr(found) == repr(expected)


def test_where_nobody_listens_it_did_not_arrive(free_port_factory: Callable[[], int]) -> None:
    with pytest.raises(ConnectionRefusedError):
        Sender(f"http://127.0.0.1:{free_port_factory()}", {}).send(b"x")


@pytest.mark.parametrize("value", ["sec\nret", "secret\N{EURO SIGN}"])
def test_an_unsendable_header_is_logged_without_its_value_and_ends_nothing(
    endpoint: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(endpoint, {"x-key": value})
    exporter = delivering(lambda _: b"x", sender.send)
    for _ in range(2):
        exporter.put([SPAN])
        exporter.deliver_waiting()
    assert (exporter.delivered, exporter.failed) == (0, 2)
    assert caplog.messages == [
        "traces: not all are taken at trace_endpoint, http://there: what "
        "OTEL_EXPORTER_OTLP_HEADERS says cannot stand in a header; 0 were sent and 1 dropped"
    ]
    assert Collector.came == []


def test_a_certificate_that_is_not_trusted_is_no_fault_of_the_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(_self: object) -> None:
        raise ssl.SSLCertVerificationError("certificate verify failed")

    monkeypatch.setattr(http.client.HTTPSConnection, "connect", connect)
    with pytest.raises(OSError, match="certificate verify failed"):
        Sender("https://127.0.0.1:4318", {}).send(b"x")


def test_a_name_that_no_host_can_have_is_not_asked_for_again() -> None:
    with pytest.raises(NotTakenError, match="no host can have that name"):
        Sender("http://a..b:4318", {}).send(b"x")


def test_spans_are_equal_to_those_of_otlps_schema() -> None:
    encoder = Encoder({"service.name": "e"}, "1.2")
    link = SpanContext("01" * 16, "02" * 8)
    failed = SPAN._replace(attributes={"a": "b", "n": 3}, links=(link,), failed=True)
    message = ExportTraceServiceRequest.FromString(encoder.encode([SPAN, failed], 1000))
    (of_resource,) = message.resource_spans
    assert of_resource.resource.attributes[0].value.string_value == "e"
    (of_scope,) = of_resource.scope_spans
    assert (of_scope.scope.name, of_scope.scope.version) == ("ringbatch", "1.2")
    plain, other = of_scope.spans
    assert plain.trace_id.hex() == "ab" * 16
    assert (plain.span_id.hex(), plain.parent_span_id.hex()) == ("cd" * 8, "ef" * 8)
    assert (plain.name, plain.kind) == ("predict m", plain.SPAN_KIND_SERVER)
    assert (plain.start_time_unix_nano, plain.end_time_unix_nano) == (1010, 1030)
    assert plain.status.code == plain.status.STATUS_CODE_UNSET
    assert other.status.code == other.status.STATUS_CODE_ERROR
    assert {a.key: a.value.string_value or a.value.int_value for a in other.attributes} == {
        "a": "b",
        "n": 3,
    }
    assert [(each.trace_id.hex(), each.span_id.hex()) for each in other.links] == [link]


def test_an_answer_without_anything_is_no_refusal() -> None:
    assert refusal(b"") == ""


class Spans:
    """Stand-in for an exporter of spans."""

    exported = full = failed = 0

    def __init__(self) -> None:
        self.traces: list[Sequence[Span]] = []

    def put(self, trace: Sequence[Span]) -> None:
        self.traces.append(trace)


def test_a_model_of_texts_has_no_route_in_its_span() -> None:
    models = (
        spec(name="m"),
        replace(spec(1, name="texts"), tokens=Tokens("", "", 1, True, False, 1)),
    )
    segment = local_segment(*models, traced=4)
    spans: Any = Spans()
    found = Breakdown(1, 0, 2, 3, 4, 5, 6)
    for model in models:
        TracedRequests(segment, 0).put(
            RequestRecord(
                1, model.account, Protocol.V1, 200, 1, found, "ab" * 16, "i", "", "c" * 16
            )
        )
    Tracing(segment, spans, lambda: 0).look()
    has_route = {trace[0].name: "http.route" in trace[0].attributes for trace in spans.traces}
    assert has_route == {"predict m": True, "predict texts": False}


def test_a_read_record_is_sent_with_its_model_and_a_batch_once_it_was_held() -> None:
    segment, now_ns = local_segment(spec(name="m"), lanes=2, traced=4), [0]
    spans: Any = Spans()
    tracing = Tracing(segment, spans, lambda: now_ns[0])
    found = Breakdown(1, 0, 2, 3, 4, 5, 6, batch=7, batch_rows=2, reason="full", attempts=1)
    request = RequestRecord(100, 0, Protocol.V1, 200, 1, found, "ab" * 16, "i", "", "cd" * 8)
    TracedRequests(segment, 0).put(request)
    tracing.look()
    TracedRequests(segment, 1).put(request._replace(span="ef" * 8))
    unknown = request._replace(account=segment.layout.models, found=Breakdown(0, 9))
    TracedRequests(segment, 1).put(unknown)
    now_ns[0] = 2_000_000_000
    tracing.look()
    tracing.look()
    assert [trace[0].name for trace in spans.traces] == [
        "predict m",
        "predict m",
        "predict",
        "batch m",
    ]
    assert [link.span for link in spans.traces[-1][0].links] == ["cd" * 8, "ef" * 8]
    for _ in range(6):
        TracedRequests(segment, 0).put(unknown)
    tracing.look()
    assert tracing.dropped == {"overwritten": 2, "queue_full": 0, "failed": 0}
