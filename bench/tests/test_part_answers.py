"""Reading of answers in parts, over each protocol, whatever pieces the bytes come in."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from load.answers import WrongAnswer
from load.part_answers import (
    PARTS,
    Answers,
    EventsOverHttp2,
    Exchange,
    OverGrpc,
    OverHttp1,
    Times,
)

from ringbatch.bench.load.grpc_call import prefixed
from ringbatch.bench.load.http2 import ACK, END_HEADERS, END_STREAM, Kind, frame, frames_of
from ringbatch.frontend.grpc.messages import inference

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
WELL = b"\x88"
FIVE = 5


def answer(numbers: list[float]) -> bytes:
    return json.dumps({"message": "", "predictions": [numbers]}, separators=(",", ":")).encode()


def event(number: float) -> bytes:
    return b"data: %b\n\n" % answer([number])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def over_http1(numbers: list[float]) -> list[bytes]:
    return [HEAD, *(chunk(event(number)) for number in numbers), chunk(b"")]


def over_http2(numbers: list[float], stream: int = 1) -> list[bytes]:
    events = [frame(Kind.DATA, 0, stream, event(number)) for number in numbers]
    head = frame(Kind.HEADERS, END_HEADERS, stream, WELL)
    return [head, *events, frame(Kind.DATA, END_STREAM, stream, b"")]


def response(number: float | None) -> bytes:
    """A message of a stream: a part, or the empty one behind the last."""
    fields: dict[str, Any] = {
        "parameters": {"triton_final_response": {"bool_param": number is None}}
    }
    if number is not None:
        fields["raw_output_contents"] = [struct.pack("<f", number)]
    return streamed(infer_response=fields)


def streamed(**fields: Any) -> bytes:
    return prefixed(inference("ModelStreamInferResponse")(**fields).SerializeToString())


def over_grpc(numbers: list[float], stream: int = 1) -> list[bytes]:
    messages = [frame(Kind.DATA, 0, stream, response(one)) for one in (*numbers, None)]
    return [frame(Kind.HEADERS, END_HEADERS, stream, WELL), *messages]


def numbers_from(begin: int, count: int = PARTS) -> list[float]:
    return [float(begin + step) for step in range(count)]


WIRES: dict[str, tuple[Callable[[Answers], Exchange], Callable[[list[float]], list[bytes]]]] = {
    "events": (lambda client: OverHttp1(client, events=True), over_http1),
    "http2": (lambda client: EventsOverHttp2([client]), over_http2),
    "grpc": (lambda client: OverGrpc([client]), over_grpc),
}
every_wire = pytest.mark.parametrize("wire", WIRES)


@every_wire
def test_each_part_has_its_time(wire: str) -> None:
    make, sent = WIRES[wire]
    times = Times()
    exchange = make(client := Answers(FIVE, times))
    exchange.ask(client, 10.0)
    pieces = sent(numbers_from(FIVE))
    ended = [exchange.take(piece, 10.0 + n / 1e3) for n, piece in enumerate(pieces)]
    assert ended == [[]] * (PARTS + 1) + [[client]]
    assert times.first == pytest.approx([1.0])
    assert times.gaps == pytest.approx([1.0] * (PARTS - 1))
    assert (times.answers, times.parts) == (1, PARTS)


@every_wire
def test_bytes_may_come_one_by_one(wire: str) -> None:
    make, sent = WIRES[wire]
    times = Times()
    exchange = make(client := Answers(FIVE, times))
    exchange.ask(client, 0.0)
    *before, last = [
        exchange.take(bytes([byte]), 0.0) for piece in sent(numbers_from(FIVE)) for byte in piece
    ]
    assert last == [client]
    assert not any(before)
    assert (times.answers, times.parts) == (1, PARTS)


@every_wire
@pytest.mark.parametrize("numbers", [numbers_from(FIVE + 1), numbers_from(FIVE, PARTS - 1)])
def test_a_wrong_answer_ends_the_measurement(wire: str, numbers: list[float]) -> None:
    make, sent = WIRES[wire]
    exchange = make(client := Answers(FIVE, Times()))
    exchange.ask(client, 0.0)
    with pytest.raises(WrongAnswer, match="and not"):
        exchange.take(b"".join(sent(numbers)), 0.0)


FAILURES = {
    "an error over HTTP/1": ("events", HEAD + chunk(b'data: {"error":"no"}\n\n')),
    "a refusal over HTTP/1": ("events", b"HTTP/1.1 503 No\r\n\r\n{}"),
    "an error over HTTP/2": ("http2", frame(Kind.DATA, 0, 1, b'data: {"error":"no"}\n\n')),
    "a refusal over HTTP/2": ("http2", frame(Kind.HEADERS, END_HEADERS, 1, b"\x08\x03503")),
    "a reset": ("http2", frame(Kind.RST_STREAM, 0, 1, bytes(4))),
    "a connection that closes": ("http2", frame(Kind.GOAWAY, 0, 0, bytes(8))),
    "an error over gRPC": ("grpc", frame(Kind.DATA, 0, 1, streamed(error_message="no"))),
    "the end of a call": ("grpc", frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, WELL)),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_ends_the_measurement(failure: str) -> None:
    wire, data = FAILURES[failure]
    exchange = WIRES[wire][0](client := Answers(FIVE, Times()))
    exchange.ask(client, 0.0)
    with pytest.raises(WrongAnswer):
        exchange.take(data, 0.0)


def test_one_answer_has_all_parts() -> None:
    times = Times()
    exchange = OverHttp1(client := Answers(FIVE, times), events=False)
    assert b"text/event-stream" not in exchange.ask(client, 1.0)
    body = answer(numbers_from(FIVE))
    assert exchange.take(HEAD + body[:30], 1.04) == []
    assert exchange.take(body[30:], 1.05) == [client]
    assert times.first == pytest.approx([50.0])
    assert (times.answers, times.parts, times.gaps) == (1, PARTS, [])


@pytest.mark.parametrize(
    ("make", "sent", "streams"),
    [(EventsOverHttp2, over_http2, [1, 3, 5, 7]), (OverGrpc, over_grpc, [1, 3, 1, 3])],
    ids=["http2", "grpc"],
)
def test_clients_share_a_connection_and_ask_again(
    make: Callable[[list[Answers]], Exchange],
    sent: Callable[[list[float], int], list[bytes]],
    streams: list[int],
) -> None:
    times = Times()
    clients = [Answers(value, times) for value in (FIVE, 2 * FIVE)]
    exchange = make(clients)
    asked = [exchange.ask(client, 0.0) for client in clients]
    answers = [
        sent(numbers_from(one.value), stream)
        for one, stream in zip(clients, streams[:2], strict=True)
    ]
    mixed = [piece for pair in zip(*answers, strict=True) for piece in pair]
    ended = [one for piece in mixed for one in exchange.take(piece, 0.0)]
    assert ended == clients
    asked += [exchange.ask(client, 0.0) for client in clients]
    frames = [[*frames_of(bytearray(data))] for data in asked]
    assert [one[0].stream for one in frames] == streams
    assert (times.answers, times.parts) == (2, 2 * PARTS)


def test_the_protocol_is_answered() -> None:
    exchange = EventsOverHttp2([])
    exchange.reply = b""
    ping = frame(Kind.PING, 0, 0, b"12345678")
    acknowledged = frame(Kind.SETTINGS, ACK, 0, b"")
    assert exchange.take(frame(Kind.SETTINGS, 0, 0, b"") + ping + acknowledged, 0.0) == []
    replies = [*frames_of(bytearray(exchange.reply))]
    assert [(one.kind, one.flags) for one in replies] == [(Kind.SETTINGS, ACK), (Kind.PING, ACK)]
    assert replies[1].payload == b"12345678"
