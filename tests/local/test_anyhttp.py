"""Whole HTTP/1.1 over a transport that records: what uvicorn's protocol lacks at the edge."""

import asyncio
import tracemalloc
from typing import Any

import pytest
from http_harness import ESCAPED, UNREAD, WAITS, Connection, request, scenario

from ringbatch.frontend.http.head_framing import MAX_HEAD_BYTES, MAX_HEADERS
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S, Phase

CHUNKED = request(b"", b"Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
TRAILERS = b"X-API-Key: a-key\r\nX-Forwarded-User: root\r\n"


@scenario
async def test_trailers_are_read_and_dropped() -> None:
    connection = Connection()
    connection.feed(CHUNKED + b"2\r\n{}\r\n0\r\n" + TRAILERS + b"\r\n")
    connection.feed(request(b"[]", b"X-Own: 1", path=b"/next"))
    await connection.settle()
    assert connection.seen == [("POST /v1/models/m:predict", b"{}"), ("POST /next", b"[]")]
    assert [set(headers) for headers in connection.headers] == [
        {b"host", b"transfer-encoding"},
        {b"host", b"content-length", b"x-own"},
    ]
    assert not connection.transport.closed


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_wish_for_another_protocol_is_not_seen_and_costs_no_byte_of_the_body(size: int) -> None:
    async def test() -> None:
        connection = Connection()
        wish = (b"Connection: Upgrade", b"UPGRADE: h2c")
        whole = request(b"GET /x HTTP/1.1\r\n\r\n", *wish, path=b"/whole")
        chunked = CHUNKED[:-2] + b"\r\n".join([*wish, b"", b"1", b"y", b"0", b"", b""])
        data = whole + chunked + request(b"", *wish, path=b"/empty") + request(b"z", path=b"/last")
        for at in range(0, len(data), size):
            connection.feed(data[at : at + size])
        await connection.settle()
        assert connection.seen == [
            ("POST /whole", b"GET /x HTTP/1.1\r\n\r\n"),
            ("POST /v1/models/m:predict", b"y"),
            ("POST /empty", b""),
            ("POST /last", b"z"),
        ]
        assert all(b"upgrade" not in headers for headers in connection.headers)

    asyncio.run(test())


@scenario
async def test_blanks_around_a_value_are_no_part_of_it() -> None:
    connection = Connection()
    connection.feed(
        request(b"", b"A: \t b c \t", b"D: \t ", b"Expect: 100-continue ", path=ESCAPED)
    )
    await connection.settle()
    (headers,) = connection.headers
    assert (headers[b"a"], headers[b"d"], headers[b"expect"]) == (b"b c", b"", b"100-continue")
    assert connection.transport.written.startswith(b"HTTP/1.1 100 ")


@pytest.mark.parametrize(
    ("target", "path"),
    [("http://a", "/"), ("http://a?b=c", "/"), ("http://a/b?c", "/b"), ("//a", "//a")],
)
def test_a_target_may_name_the_server(target: str, path: str) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(request(b"", path=target.encode()))
        await connection.settle()
        assert connection.seen == [(f"POST {path}", b"")]

    asyncio.run(test())


@scenario
async def test_a_close_behind_a_body_is_a_close() -> None:
    connection = Connection()
    connection.feed(CHUNKED + b"0\r\nConnection: close\r\n\r\n" + request(b"[]"))
    await connection.settle()
    assert len(connection.seen) == 1
    assert b"connection: close\r\n" in connection.transport.written
    assert connection.transport.closed


ENDLESS = {
    "trailers": b"0\r\n" + b"a:b\r\n" * MAX_HEAD_BYTES,
    "one-trailer": b"0\r\na:" + b"b" * 8 * MAX_HEAD_BYTES,
    "an-extension": b"2;a=" + b"b" * 8 * MAX_HEAD_BYTES,
    "empty-lines": b"0\r\n\r\n" + b"\r\n" * 2 * MAX_HEAD_BYTES,
}


@pytest.mark.parametrize("case", ENDLESS)
def test_lines_without_end_are_refused_and_take_no_memory(case: str) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(CHUNKED)
        await connection.settle()
        data = ENDLESS[case]
        tracemalloc.start()
        for at in range(0, len(data), 1 << 12):
            connection.feed(data[at : at + (1 << 12)])
            await connection.settle()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 4 * MAX_HEAD_BYTES
        assert b"HTTP/1.1 431 " in connection.transport.written
        assert connection.transport.closed

    asyncio.run(test())


@pytest.mark.parametrize("path", [b"/v1/models/m:predict", ESCAPED])
def test_a_head_has_only_so_many_lines(path: bytes) -> None:
    async def test() -> None:
        connection = Connection(at_once=True)
        connection.feed(request(b"", *[b"A: b"] * (MAX_HEADERS - 2), path=path))
        await connection.settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 200 ")
        connection.transport.written = b""
        connection.feed(request(b"", *[b"A: b"] * (MAX_HEADERS - 1), path=path))
        await connection.settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 431 ")
        assert connection.transport.closed
        assert len(connection.seen) + len(connection.calls) == 1

    asyncio.run(test())


@scenario
async def test_very_many_small_chunks_are_a_body_like_any_other() -> None:
    connection = Connection()
    connection.feed(CHUNKED)
    for _ in range(100):
        connection.feed(b"1\r\nx\r\n" * (MAX_HEAD_BYTES // 100))
    connection.feed(b"0\r\n\r\n")
    await connection.settle()
    assert [len(body) for _, body in connection.seen] == [MAX_HEAD_BYTES // 100 * 100]


def lingers(connection: Connection) -> bool:
    """Return whether the server has sent its final response and waits for the client to hang up."""
    transport = connection.transport
    return (
        transport.ended
        and not transport.closed
        and transport.written.count(b"HTTP/1.1 ") == 1
        and transport.protocol.phase() is Phase.TAKING
    )


@scenario
async def test_behind_an_answer_in_the_middle_of_a_body_nothing_is_served_any_more() -> None:
    connection = Connection()
    connection.transport.hangs_up = False
    refused = request(b"{}", path=UNREAD.encode())
    connection.feed(refused[:-1])
    connection.transport.protocol.leave()
    await connection.settle()
    assert lingers(connection)
    connection.feed(refused[-1:] + request(b"[]", path=ESCAPED))
    await connection.settle()
    assert lingers(connection)
    assert len(connection.seen) == 1


@pytest.mark.parametrize("more", [b"GET /", request(b"[]", path=ESCAPED)], ids=["half", "whole"])
def test_the_last_answer_ends_requests_behind_it(more: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.transport.hangs_up = False
        connection.feed(request(b"{}", path=WAITS.encode()))
        connection.transport.protocol.leave()
        connection.feed(more)
        connection.may_answer.set()
        await connection.settle()
        assert lingers(connection)
        assert len(connection.seen) == 1

    asyncio.run(test())


@scenario
async def test_a_refused_client_gets_no_100_continue() -> None:
    async def reads_late(scope: Any, receive: Any, _send: Any) -> None:
        await scope["state"]["may_answer"].wait()
        await receive()

    connection = Connection(served=reads_late)
    connection.transport.hangs_up = False
    connection.feed(request(b"{}", b"Expect: 100-continue", path=ESCAPED)[:-1])
    await connection.settle()
    for _ in range(BODY_TIMEOUT_S + 1):
        connection.transport.protocol.tick()
    connection.may_answer.set()
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 408 ")
    assert lingers(connection)
