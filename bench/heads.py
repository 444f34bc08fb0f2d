"""CPU time of a frontend by heads: the same one again, and one of its own in each request.

Behind a mesh, a gateway or a client that traces, every request has an id or a trace of its own. As
in `steps.py`, the steps of all roles are called by hand, and nothing sleeps or waits; only the
frontend's are timed, from the bytes of requests to those of their answers. The kinds of heads take
turns, batch by batch, each on connections of its own, and the better half counts.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, cast

from hpack import Encoder
from observability import BODY, Connections, Transport, recorder_of
from report.record import Report
from report.rounds import table
from steps import REPETITIONS, SIZES, Engine

from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.grpc.call_head import CallHeadReader
from ringbatch.frontend.grpc.connection import GrpcConnection, GrpcSettings
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from ringbatch.shm.host.process import settle

SAME: Final = "the same"
OWN: Final = "own traceparent"
MAX_RATIOS: Final = {"HTTP/1.1": 1.8, "gRPC": 1.3}
"""Limits of the ratio for requests with a trace of their own. A frontend's part over HTTP/1.1 is a
tenth of what server and client take together, which `speed.py` holds to its limit."""
_SETTINGS: Final = AccessSettings("failures")
_METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"
_WINDOW: Final = frame(WINDOW_UPDATE, 0, 0, (0x7FFF0000).to_bytes(4, "big"))
"""Room for the answers of all calls of a connection: the first window ends after some 500."""
_TRACE: Final = b"00-%032x-00f067aa0ba902b7-01"
_FIRST_LINES: Final = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: models.example:8080\r\n"
_LAST_LINES: Final = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
_FIELDS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", _METHOD),
    (":authority", "models.example:8081"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("grpc-accept-encoding", "identity, deflate, gzip"),
    ("user-agent", "grpc-python/1.80.0 grpc-c/54.0.0 (linux; chttp2)"),
)


def http_same(_number: int) -> bytes:
    """Return the same request each time."""
    return _FIRST_LINES + _LAST_LINES


def http_nine(number: int) -> bytes:
    """Return a request with one of nine heads, never the same twice in a row on a connection."""
    return b"%bUser-Agent: client/%d\r\n%b" % (_FIRST_LINES, number % 9, _LAST_LINES)


def http_trace(number: int) -> bytes:
    """Return a request with a trace of its own."""
    return b"%btraceparent: %b\r\n%b" % (_FIRST_LINES, _TRACE % number, _LAST_LINES)


def http_gateway(number: int) -> bytes:
    """Return a request as Envoy passes it on."""
    lines = (
        b"user-agent: python-requests/2.32.3",
        b"accept-encoding: gzip, deflate",
        b"accept: */*",
        b"x-forwarded-for: 192.0.2.%d" % (number % 250),
        b"x-forwarded-proto: https",
        b"x-envoy-external-address: 192.0.2.%d" % (number % 250),
        b"x-request-id: 6c1bca0c-9ddb-4a3f-8d93-%012x" % number,
        b"x-envoy-expected-rq-timeout-ms: 15000",
        b"traceparent: " + _TRACE % number,
    )
    return b"%b%b\r\n%b" % (_FIRST_LINES, b"\r\n".join(lines), _LAST_LINES)


def grpc_same(encoder: Encoder, _number: int) -> bytes:
    """Return the same head each time."""
    return encoder.encode(_FIELDS)


def grpc_literal(encoder: Encoder, number: int) -> bytes:
    """Return a head with a trace of its own that enters no table, as grpcio writes it."""
    own = ("traceparent", (_TRACE % number).decode(), True)
    return encoder.encode([*_FIELDS, own], huffman=False)


def grpc_entered(encoder: Encoder, number: int) -> bytes:
    """Return a head whose time limit and trace enter the table, as grpc-go and Envoy write it."""
    own = (("grpc-timeout", f"{9_999_999 - number % 1000}u"), ("traceparent", _TRACE % number))
    return encoder.encode([*_FIELDS, *own])


HTTP: Final[dict[str, Callable[[int], bytes]]] = {
    SAME: http_same,
    "nine in turn": http_nine,
    OWN: http_trace,
    "through a gateway": http_gateway,
}
GRPC: Final[dict[str, Callable[[Encoder, int], bytes]]] = {
    SAME: grpc_same,
    OWN: grpc_literal,
    "own, in the header table": grpc_entered,
}


class Http:
    """Connections of the fast lane, to an engine of their own.

    Args:
        make: a request, by its number.
        size: of a batch, a request on each connection.
    """

    def __init__(self, make: Callable[[int], bytes], size: int) -> None:
        self._make, self._numbers = make, count(1)
        self._connections = Connections(_SETTINGS, size)
        self.engine = self._connections.engine
        self._waiting: list[bytes] = []

    def prepare(self) -> None:
        """Make the bytes of a batch."""
        lanes = self._connections.lanes
        self._waiting = [self._make(next(self._numbers)) for _ in lanes]

    def send(self) -> None:
        """Take them."""
        for lane, request in zip(self._connections.lanes, self._waiting, strict=True):
            lane.data_received(request)
        self.engine.loop.turn()

    def check(self) -> None:
        """Expect an answer to each."""
        self._connections.check()


class StreamTransport(Transport):
    """Takes what is written, as the transport of many streams."""

    def is_closing(self) -> bool:
        """Return whether the transport is closing, as asyncio's does."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return 0, as nothing waits; asyncio's method."""
        return 0


class Grpc:
    """Connections of gRPC, to an engine of their own.

    Args:
        make: the header block of a call, by the connection's encoder and a number.
        size: of a batch, a call on each connection.
    """

    def __init__(self, make: Callable[[Encoder, int], bytes], size: int) -> None:
        self._make, self._numbers = make, count(1)
        self.engine = Engine(size)
        self._answers: list[bytes] = []
        recorder, _ = recorder_of(self.engine, _SETTINGS)
        methods = {_METHOD: MethodHandler(infers=True, streams_requests=False, serve=_unserved)}
        settings = GrpcSettings(
            inference=Inference(self.engine.service),
            heads=CallHeadReader(methods, None),
            recorder=recorder,
            budget=cast(Any, None),
            max_request_bytes=1 << 20,
            idle_timeout_s=75.0,
            age_s=lambda: 3600.0,
            stopping=lambda: False,
            connections=set(),
            keyless={},
            incoming=bytearray(1 << 16),
        )
        request = inference("ModelInferRequest")(
            model_name="double",
            inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 16]}],
            raw_input_contents=[bytes(64)],
        )
        message: bytes = request.SerializeToString()
        self._body = bytes(1) + len(message).to_bytes(4, "big") + message
        self._connections = []
        for _ in range(size):
            connection = GrpcConnection(settings, cast(Any, self.engine.loop))
            connection.connection_made(cast(Any, StreamTransport(self._answers.append)))
            connection.data_received(PREFACE + frame(SETTINGS, 0, 0, b"") + _WINDOW)
            self._connections.append((connection, Encoder(), count(1, 2)))
        self.engine.loop.turn()
        self._waiting: list[bytes] = []

    def prepare(self) -> None:
        """Make the bytes of a batch."""
        self._answers.clear()
        self._waiting = []
        for _, encoder, streams in self._connections:
            stream = next(streams)
            head = frame(HEADERS, END_HEADERS, stream, self._make(encoder, next(self._numbers)))
            self._waiting.append(head + frame(DATA, END_STREAM, stream, self._body))

    def send(self) -> None:
        """Take them."""
        for (connection, *_), call in zip(self._connections, self._waiting, strict=True):
            connection.data_received(call)
        self.engine.loop.turn()

    def check(self) -> None:
        """Expect an answer to each."""
        answers = b"".join(self._answers)
        assert answers.count(b"grpc-status\x010") == len(self._connections), answers


Side = Http | Grpc


def batch(side: Side) -> float:
    """Serve a batch; nanoseconds of the frontend for each request."""
    side.prepare()
    engine = side.engine
    began_ns = time.perf_counter_ns()
    side.send()
    sent_ns = time.perf_counter_ns()
    engine.collect()
    engine.run()
    engine.collect()
    collected_ns = time.perf_counter_ns()
    engine.answer()
    engine.loop.turn()
    took_ns = time.perf_counter_ns() - collected_ns + sent_ns - began_ns
    side.check()
    return took_ns / engine.size


def figures(sides: dict[str, Side], repetitions: int) -> dict[str, float]:
    """Return nanoseconds for a request, by kind of heads: the mean of the better half of many."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    settle()
    order = list(sides)
    for _ in range(repetitions):
        random.shuffle(order)
        for name in order:
            found[name].append(batch(sides[name]))
    halves = {name: sorted(took)[: len(took) // 2] for name, took in found.items()}
    return {name: sum(half) / len(half) for name, half in halves.items()}


def show(report: Report, protocol: str, sizes: Sequence[int], repetitions: int) -> None:
    """Measure one protocol, print it, and hold it to its limits."""
    runs: dict[int, dict[str, float]] = {}
    for size in sizes:
        sides: dict[str, Side] = (
            {name: Http(make, size) for name, make in HTTP.items()}
            if protocol == "HTTP/1.1"
            else {name: Grpc(make, size) for name, make in GRPC.items()}
        )
        runs[size] = figures(sides, repetitions)
        report.run(protocol=protocol, batch=size, result=runs[size])
    names = list(runs[sizes[0]])
    lines = [
        [name, *(f"{runs[size][name]:,.0f}" for size in sizes)]
        + [f"{runs[size][name] / runs[size][SAME]:.3f}" for size in sizes]
        for name in names
    ]
    head = [f"{protocol}, ns for a request", *(f"batch of {size}" for size in sizes)]
    report.print_text(table([*head, *(f"/ {SAME}, {size}" for size in sizes)], lines))
    for size in sizes:
        ratio = runs[size][OWN] / runs[size][SAME]
        most = MAX_RATIOS[protocol]
        report.limit(f"{protocol}, {OWN}, batch of {size}", ratio, at_most=most)


def _unserved(*_: object) -> Any:
    """Refuse calls that are no inference."""
    raise NotImplementedError


def main() -> int:
    """Measure; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=2 * REPETITIONS, help="of each batch")
    options = parser.parse_args()
    report = Report("heads", vars(options))
    for protocol in ("HTTP/1.1", "gRPC"):
        show(report, protocol, SIZES, options.repetitions)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
