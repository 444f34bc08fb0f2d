"""Calls over gRPC as a generator makes them, against h2 and protobuf's own messages."""

import struct
from collections.abc import Sequence
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import numpy as np
import orjson
import pytest

from ringbatch.bench.load import http2
from ringbatch.bench.load.answers import BadAnswer, Reference
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.grpc_call import METHOD, GrpcCall, call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request, outputs_of, tensors_of
from ringbatch.bench.load.outcome import GRPC, WRONG
from ringbatch.frontend.codec.request_ids import sound_trace
from ringbatch.frontend.grpc.messages import inference

OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2.0]}
HEAD = [(":status", "200"), ("content-type", "application/grpc")]


def v2(*tensors: dict[str, Any]) -> bytes:
    return orjson.dumps({"inputs": tensors})


def response(*tensors: dict[str, Any], request_id: str = "") -> bytes:
    """Return a server's response with raw contents."""
    outputs = [{key: one[key] for key in ("name", "datatype", "shape")} for one in tensors]
    raw = [np.array(one["data"], "<f4").tobytes() for one in tensors]
    made = inference("ModelInferResponse")(
        model_name="m", id=request_id, outputs=outputs, raw_output_contents=raw
    )
    return bytes(made.SerializeToString())


class Peer:
    """A server, connected to a call."""

    def __init__(self, call: GrpcCall, **settings: int) -> None:
        self.call = call
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        codes = h2.settings.SettingCodes
        self.h2.update_settings({codes[name.upper()]: n for name, n in settings.items()})
        self.requests: list[tuple[int, dict[str, str]]] = []
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.read(call.greeting())

    def read(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                headers = {str(name): str(value) for name, value in event.headers}
                self.requests.append((event.stream_id, headers))
            elif isinstance(event, h2.events.DataReceived):
                old = self.bodies.get(event.stream_id, b"")
                self.bodies[event.stream_id] = old + event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)

    def send(self) -> int | None:
        """Let a call take all that is there, read its reply, and return the last status."""
        found = None
        while data := self.h2.data_to_send():
            status = self.call.take(data)
            found = found if status is None else status
            reply, self.call.reply = self.call.reply, b""
            if reply:
                self.read(reply)
        return found

    def ask(self, which: int = 0) -> int:
        self.read(self.call.ask(which, 0))
        return self.requests[-1][0]

    def answer(
        self, message: bytes, status: str = "0", more: Sequence[tuple[str, str]] = ()
    ) -> None:
        stream = self.requests[-1][0]
        self.h2.send_headers(stream, HEAD)
        data = prefixed(message)
        for at in range(0, len(data), 16384):
            self.h2.send_data(stream, data[at : at + 16384])
        self.h2.send_headers(stream, [("grpc-status", status), *more], end_stream=True)


def call_of(
    messages: Sequence[bytes] = (b"question",), references: Sequence[Reference] = ()
) -> GrpcCall:
    head = call_head("host:1", [("X-Key", "secret")])
    return GrpcCall(Requests([prefixed(one) for one in messages], references, head))


REFERENCE = Reference.of(orjson.dumps({"model_name": "m", "outputs": [OUTPUT]}))


# Calls


def test_a_call_is_one_that_a_server_of_grpc_understands() -> None:
    peer = Peer(call_of([b"question", b"another"]))
    for which, body in ((0, b"question"), (1, b"another")):
        stream = peer.ask(which)
        assert peer.requests[-1][1] == {
            ":method": "POST",
            ":scheme": "http",
            ":path": METHOD,
            ":authority": "host:1",
            "te": "trailers",
            "content-type": "application/grpc",
            "x-key": "secret",
        }
        assert peer.bodies[stream] == prefixed(body)
        assert stream in peer.ended
        peer.answer(b"", more=[("x-request-id", str(which))])
        assert peer.send() == 200
    assert [stream for stream, _ in peer.requests] == [1, 3]


def test_each_call_may_have_a_trace_of_its_own() -> None:
    head = call_head("host:1", [("X-Key", "secret")], enters=True)
    peer = Peer(GrpcCall(Requests([prefixed(b"")], (), head), Traces(7)))
    for _ in range(3):
        peer.ask()
        peer.answer(b"")
        assert peer.send() == 200
    traces = [fields["traceparent"].encode() for _, fields in peer.requests]
    assert len({*traces}) == 3
    assert all(sound_trace(trace) for trace in traces)
    assert all(fields["x-key"] == "secret" for _, fields in peer.requests)


def test_a_host_that_is_given_is_the_one_that_a_call_is_for() -> None:
    head = call_head("host:1", [("Host", "model.example.com"), ("X-Key", "secret")])
    peer = Peer(GrpcCall(Requests([prefixed(b"")], (), head)))
    peer.ask()
    found = peer.requests[-1][1]
    assert found[":authority"] == "model.example.com"
    assert found["x-key"] == "secret"
    assert "host" not in found


def test_an_answer_with_any_id_is_compared_with_the_right_one() -> None:
    peer = Peer(call_of(references=[REFERENCE]))
    wrong = {**OUTPUT, "data": [1.5, 2.0]}
    near = {**OUTPUT, "data": [1.5001, -2.0]}
    other = {**OUTPUT, "shape": [2, 1]}
    for outputs, status in (
        ([OUTPUT], 200),
        ([OUTPUT], 200),
        ([wrong], WRONG),
        ([near], 200),
        ([other], WRONG),
        ([], WRONG),
        ([OUTPUT, OUTPUT], WRONG),
    ):
        peer.ask()
        peer.answer(response(*outputs, request_id=str(len(peer.requests))))
        assert peer.send() == status
    peer.ask()
    peer.answer(b"\xff\xff")
    assert peer.send() == WRONG


def test_a_failure_has_its_status_with_or_without_a_message_before_it() -> None:
    peer = Peer(call_of())
    peer.ask()
    peer.answer(b"", "13", [("grpc-message", "no")])
    assert peer.send() == GRPC + 13
    stream = peer.ask()
    peer.h2.send_headers(stream, [*HEAD, ("grpc-status", "8")], end_stream=True)
    assert peer.send() == GRPC + 8
    stream = peer.ask()
    peer.h2.send_headers(stream, [(":status", "502")], end_stream=True)
    assert peer.send() == 502
    assert not peer.call.closes


def test_no_more_is_sent_than_the_server_has_room_for() -> None:
    large = bytes(range(256)) * 1000
    peer = Peer(call_of([large]), initial_window_size=1000)
    peer.send()
    for _ in range(2):
        sent = peer.call.ask(0, 0)
        assert len(sent) < 1200
        peer.read(sent)
        while peer.requests[-1][0] not in peer.ended:
            assert peer.send() is None
        assert peer.bodies[peer.requests[-1][0]] == prefixed(large)
        peer.answer(b"")
        assert peer.send() == 200


def test_answers_of_any_size_come_and_the_room_for_them_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringbatch.bench.load.grpc_call._REPLENISH", 200_000)
    peer = Peer(call_of())
    assert peer.h2.outbound_flow_control_window == http2.WINDOW_MAX
    for size, left in ((300_000, 0), (1000, 1005)):
        peer.ask()
        peer.answer(bytes(size))
        assert peer.send() == 200
        assert http2.WINDOW_MAX - peer.h2.outbound_flow_control_window == left


def test_pings_are_answered_and_settings_acknowledged() -> None:
    peer = Peer(call_of())
    peer.h2.ping(b"12345678")
    for data in (peer.h2.data_to_send(),):
        assert peer.call.take(data) is None
    events = peer.h2.receive_data(peer.call.reply)
    kinds = {type(event) for event in events}
    assert {h2.events.PingAckReceived, h2.events.SettingsAcknowledged} <= kinds


def test_a_connection_that_the_server_ends_takes_its_last_answer() -> None:
    peer = Peer(call_of())
    peer.ask()
    peer.h2.close_connection(last_stream_id=1)
    peer.call.take(peer.h2.data_to_send())
    assert peer.call.closes
    block = http2.header_block([("grpc-status", "0")])
    flags = http2.END_HEADERS | http2.END_STREAM
    assert peer.call.take(http2.frame(http2.Kind.HEADERS, flags, 1, block)) == 200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not HTTP/2"),
        (http2.frame(http2.Kind.RST_STREAM, 0, 1, struct.pack(">I", 2)), "reset a call .* code 2"),
        (http2.frame(http2.Kind.RST_STREAM, 0, 1, b""), "too short"),
        (http2.frame(http2.Kind.GOAWAY, 0, 0, bytes(8)), "takes no further call"),
        (http2.frame(http2.Kind.HEADERS, 5, 1, b"\xff\xff\xff"), "cannot be read"),
        (http2.frame(http2.Kind.HEADERS, 5, 1, http2.header_block([("a", "b")])), "grpc-status"),
        (http2.frame(http2.Kind.DATA, 1, 1, b""), "grpc-status"),
    ],
)
def test_an_invalid_answer_breaks_the_connection_with_words(data: bytes, words: str) -> None:
    call = call_of()
    call.ask(0, 0)
    with pytest.raises(BadAnswer, match=words):
        call.take(data)


def test_an_answer_in_pieces_is_one() -> None:
    peer = Peer(call_of(references=[REFERENCE]))
    peer.send()
    peer.ask()
    peer.answer(response(OUTPUT))
    data = peer.h2.data_to_send()
    statuses = [peer.call.take(bytes([byte])) for byte in data]
    assert statuses == [None] * (len(data) - 1) + [200]


# Messages


def test_a_request_of_v2_becomes_the_same_request_of_grpc() -> None:
    body = v2(
        {"name": "x", "datatype": "INT16", "shape": [2, 2], "data": [[1, -2], [3, 400]]},
        {"name": "s", "datatype": "BYTES", "shape": [2], "data": ["a", "ö"]},
        {"name": "b", "datatype": "BF16", "shape": [1], "data": [1.5]},
        {"name": "t", "datatype": "BOOL", "shape": [1], "data": [True]},
    )
    made = inference("ModelInferRequest").FromString(infer_request("größe", body))
    assert made.model_name == "größe"
    assert [(one.name, one.datatype, list(one.shape)) for one in made.inputs] == [
        ("x", "INT16", [2, 2]),
        ("s", "BYTES", [2]),
        ("b", "BF16", [1]),
        ("t", "BOOL", [1]),
    ]
    assert list(made.raw_input_contents) == [
        struct.pack("<4h", 1, -2, 3, 400),
        b"\x01\0\0\0a\x02\0\0\0\xc3\xb6",
        b"\xc0\x3f",
        b"\x01",
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"inputs": [], "parameters": {}}', '"parameters" too'),
        (v2({"name": "x", "datatype": "FP33", "shape": [1], "data": [1]}), "FP33"),
        (v2({"name": "x", "datatype": "FP32", "shape": [2], "data": [1]}), "reshape"),
        (v2({"name": "x", "datatype": "BYTES", "shape": [1], "data": [1]}), "cannot be read"),
    ],
)
def test_a_body_that_grpc_cannot_carry_is_named(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tensors_of(body)


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-1, 127]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [0.5, -1.25]),
        ("FP64", "fp64_contents", [0.1, 1e300]),
        ("BYTES", "bytes_contents", [b"a", "ö".encode()]),
    ],
)
def test_an_answer_with_typed_contents_is_read(
    datatype: str, field: str, values: list[Any]
) -> None:
    tensor = {"name": "y", "datatype": datatype, "shape": [2], "contents": {field: values}}
    message = inference("ModelInferResponse")(outputs=[tensor]).SerializeToString()
    outputs, _ = outputs_of(message)
    data = [value.decode() if isinstance(value, bytes) else value for value in values]
    assert outputs() == [{"name": "y", "datatype": datatype, "shape": [2], "data": data}]


def test_an_answer_with_raw_contents_is_read_and_separated_from_its_id() -> None:
    outputs, tensor_bytes = outputs_of(response(OUTPUT, request_id="a"))
    assert outputs() == [OUTPUT]
    assert outputs_of(response(OUTPUT, request_id="b"))[1] == tensor_bytes
    assert outputs_of(response({**OUTPUT, "data": [1.5, 2.0]}))[1] != tensor_bytes
    for cut in (b"\x0a\xff", b"\x0a", b"\x0b", b"\xff" * 11):
        with pytest.raises(ValueError, match=r"cut off|wire type"):
            outputs_of(cut)
