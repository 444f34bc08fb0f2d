"""Handover from the fast lane: foreign requests pass on whole, and what is no HTTP is refused."""

import asyncio
import time
from typing import Any

import pytest
from http_harness import ESCAPED, WAITS, Connection, request, response, scenario, until

from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.head_framing import MAX_HEAD_BYTES
from ringbatch.shm.tallies import Protocol

TRICKLED_CPU_S = 1.0


@scenario
async def test_a_foreign_request_is_handed_over_with_every_byte() -> None:
    connection = Connection()
    connection.feed(request(b"first", path=ESCAPED) + request(b"second"))
    await connection.settle()
    assert connection.seen == [
        ("POST /v1/models/m:predict", b"first"),
        ("POST /v1/models/m:predict", b"second"),
    ]
    assert connection.transport.written.count(b"falcon") == 2
    assert isinstance(connection.transport.protocol, FallbackProtocol)
    assert connection.state.connections == {connection.transport.protocol}
    assert connection.handed_over == 1
    assert connection.calls == []


@scenario
async def test_a_handover_may_happen_within_any_request() -> None:
    data = request(b"first", path=ESCAPED)
    for split in range(len(data)):
        connection = Connection()
        connection.feed(data[:split])
        connection.feed(data[split:])
        await connection.settle()
        assert connection.seen == [("POST /v1/models/m:predict", b"first")]


@scenario
async def test_a_handover_waits_for_the_answer_before_it() -> None:
    connection = Connection()
    connection.feed(request(b"{}") + request(b"later", path=ESCAPED))
    await connection.settle()
    assert connection.handed_over == 0
    connection.calls[0].answer()
    await connection.settle()
    assert connection.seen == [("POST /v1/models/m:predict", b"later")]
    assert connection.transport.written.startswith(response(2) + b"HTTP/1.1 200 OK")


@scenario
async def test_a_handover_takes_a_pause_of_writing_along() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.feed(request(b"{}", path=ESCAPED)[:30])
    connection.lane.pause_writing()
    connection.lane.resume_writing()
    connection.feed(request(b"{}", path=ESCAPED)[30:])
    await connection.settle()
    assert connection.transport.is_reading()
    assert connection.seen == [("POST /v1/models/m:predict", b"{}")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01", b", but TLS; this port is served without, at http://"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b", but HTTP/2, which is served with [server] http2"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + request(b"{}"), b", but the PROXY protocol, "),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0" + request(b"{}"), b", but the PROXY protocol, "),
        (b"GET / HTTP/1.1\nHost: x\n", b": Expected CRLF"),
        (b"POST /v1/models/m:predict HTTP/1.1\nHost: x\n\n", b": Expected CRLF"),
        (request(b"{}", b"Content-Length: 3"), b": Duplicate Content-Length"),
        (request(b"{}").replace(b"Length: 2", b"Length: abc"), b": Invalid character in Content-"),
        (request(b"{}", b"Transfer-Encoding: chunked"), b": Transfer-Encoding can't be present"),
        (request(b"{}", b"bad header : x"), b": Invalid header token"),
        (b"nonsense\r\n\r\n", b": Invalid method"),
    ],
)
def test_bytes_that_are_no_http_are_refused_in_json(data: bytes, words: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(data)
        await connection.settle()
        head, body = connection.transport.written.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"content-type: application/json" in head
        assert body.startswith(b'{"error":"this is not an HTTP/1.1 request' + words)
        assert connection.transport.is_closing()
        assert connection.calls == []
        assert connection.seen == []

    asyncio.run(test())


@scenario
async def test_garbage_behind_a_request_does_not_cost_its_answer() -> None:
    connection = Connection()
    connection.feed(request(b"{}", path=ESCAPED) + b"garbage\r\n\r\n")
    await connection.settle()
    first, second = connection.transport.written.split(b"falcon")
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 400 Bad Request")
    assert connection.transport.is_closing()


@pytest.mark.parametrize(
    "start", [b"POST /v1/models/m:predict HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nA: "]
)
def test_a_head_without_end_is_refused(start: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(start)
        for _ in range(MAX_HEAD_BYTES // 1000 + 1):
            connection.feed(b"a" * 1000)
        assert connection.transport.written.startswith(b"HTTP/1.1 431 ")
        assert connection.transport.is_closing()
        assert connection.ended == [(Protocol.HTTP, 431, "")]

    asyncio.run(test())


@scenario
async def test_a_head_that_trickles_in_costs_no_more_the_longer_it_gets() -> None:
    connection = Connection(at_once=True)
    head = request(b"", b"A: " + b"a" * (MAX_HEAD_BYTES - 100))
    began_s = time.process_time()
    for at in range(len(head)):
        connection.feed(head[at : at + 1])
    # Looked through as a whole for each byte, it takes twenty times as long.
    assert time.process_time() - began_s < TRICKLED_CPU_S
    assert connection.transport.written == response(0)


@pytest.mark.parametrize(
    ("pieces", "foreign"),
    [
        ((b"A: b\r", b"\n"), False),
        ((b"A: b\r\n", b"\r\n"), False),
        ((b"A: b", b"\n"), True),
        ((b"A: b\r\n", b"\n"), True),
    ],
)
def test_where_a_line_ends_does_not_depend_on_how_it_comes(
    pieces: tuple[bytes, ...], foreign: bool
) -> None:
    async def test() -> None:
        connection = Connection(at_once=True)
        connection.feed(request(b"")[:-2])
        for piece in pieces:
            connection.feed(piece)
        assert connection.handed_over == foreign

    asyncio.run(test())


OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
KEPT = b"\r\nconnection: keep-alive\r\n"


@scenario
async def test_an_http_1_0_client_keeps_its_connection_where_it_asks_to() -> None:
    connection = Connection()
    for answered in (1, 2):
        connection.feed(OLD)
        await until(lambda count=answered: connection.transport.written.count(b"falcon") == count)  # type: ignore[misc]
        assert connection.transport.written.count(KEPT) == answered
        assert not connection.transport.is_closing()
    connection.transport.protocol.leave()
    connection.feed(OLD)
    await until(connection.transport.is_closing)
    assert connection.transport.written.count(KEPT) == 2
    assert connection.transport.written.count(b"\r\nconnection: close\r\n") == 1


async def streaming(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer without a length, and with a Transfer-Encoding of its own."""
    headers = [(b"Transfer-Encoding", b"chunked")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


@scenario
async def test_an_http_1_0_client_gets_a_body_of_unknown_length_without_chunks() -> None:
    for asked in (OLD, OLD.replace(b"Connection: keep-alive\r\n", b"")):
        connection = Connection(served=streaming)
        connection.feed(asked)
        await until(connection.transport.is_closing)
        head, _, body = bytes(connection.transport.written).partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head
        assert b"keep-alive" not in head


@scenario
async def test_an_http_1_0_client_answered_during_a_leave_learns_of_the_close() -> None:
    connection = Connection()
    connection.feed(OLD.replace(b" / ", b" %b " % WAITS.encode()))
    await connection.settle()
    connection.transport.protocol.leave()
    connection.may_answer.set()
    await until(connection.transport.is_closing)
    assert KEPT not in connection.transport.written
    assert b"\r\nconnection: close\r\n" in connection.transport.written


@scenario
async def test_an_http_1_0_client_that_does_not_ask_is_answered_once() -> None:
    connection = Connection()
    connection.feed(b"GET / HTTP/1.0\r\n\r\n")
    await until(connection.transport.is_closing)
    assert KEPT not in connection.transport.written
