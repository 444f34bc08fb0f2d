"""Clients of HTTP/2 that ask for too much: floods, long heads, too many streams."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from http2_client import stuck
from http2_harness import GREETING, block, frame, headers
from http_harness import Connection, scenario

from ringbatch.frontend.http2.frames import (
    CONTINUATION,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
)
from ringbatch.frontend.streams.connection import MOST_STREAMS

FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid-resets": lambda n: headers(2 * n + 1) + frame(RST_STREAM, 0, 2 * n + 1, bytes(4)),
    "pings": lambda _n: frame(PING, 0, 0, bytes(8)),
    "settings": lambda _n: frame(SETTINGS, 0, 0),
    "empty-pieces": lambda n: headers(1) if not n else frame(0, 0, 1),
    "long-heads": lambda n: headers(2 * n + 1, END_STREAM, block(*[(b"a", b"b")] * 1500)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_its_connection_and_leaves_nothing(flood: str) -> None:
    async def run() -> None:
        connection = Connection(http2=True, served=stuck)
        connection.feed(GREETING)
        most = sent = 0
        while not connection.transport.closed:
            assert sent < 30_000, "it goes on for ever"
            connection.feed(FLOODS[flood](sent))
            sent += 1
            if not sent % 100:
                await connection.settle()
                most = max(most, len(connection.state.tasks))
        await connection.settle()
        assert ENHANCE_YOUR_CALM.to_bytes(4, "big") in connection.transport.written[-200:]
        assert most <= MOST_STREAMS
        assert not connection.state.tasks

    asyncio.run(run())


@scenario
async def test_a_header_block_without_an_end_ends_its_connection() -> None:
    connection = Connection(http2=True)
    connection.feed(GREETING + frame(HEADERS, 0, 1, block()))
    for _ in range(64):
        connection.feed(frame(CONTINUATION, 0, 1, b"\0\1a\1b"))
    assert connection.transport.closed
    assert ENHANCE_YOUR_CALM.to_bytes(4, "big") in connection.transport.written


def long_heads(count: int) -> bytes:
    """Heads of which five are read at once."""
    numbers = range(1, 2 * count, 2)
    many = [(b"a", b"b")] * 200
    return b"".join(headers(n, END_STREAM, block(*many, (b"n", b"%d" % n))) for n in numbers)


def seen(transport: Any) -> tuple[int, bool]:
    """Return the number of streams, and whether the connection is still read."""
    return len(transport.protocol.core.streams), transport.reading


@scenario
async def test_long_heads_are_read_in_turns_and_meanwhile_nothing_else_is() -> None:
    connection = Connection(http2=True, served=stuck)
    transport = connection.transport
    connection.feed(GREETING + long_heads(20))
    assert seen(transport) == (5, False)
    await connection.settle()
    assert seen(transport) == (20, True)
    transport.abort()
    await connection.settle()


@scenario
async def test_a_client_that_takes_no_answers_is_read_no_further_after_the_heads() -> None:
    connection = Connection(http2=True, served=stuck)
    transport = connection.transport
    connection.feed(GREETING + long_heads(20))
    transport.protocol.pause_writing()
    await connection.settle()
    assert seen(transport) == (20, False)
    transport.protocol.resume_writing()
    assert seen(transport) == (20, True)
    connection.feed(long_heads(40)[len(long_heads(20)) :])
    transport.protocol.pause_writing()
    transport.protocol.resume_writing()
    assert seen(transport) == (25, False), "heads are there that are not read"
    await connection.settle()
    assert seen(transport) == (40, True)
    transport.abort()
    await connection.settle()


@scenario
async def test_a_client_that_leaves_behind_long_heads_is_gone() -> None:
    connection = Connection(http2=True)
    connection.feed(GREETING + long_heads(20))
    connection.transport.abort()
    await connection.settle()
    assert not connection.state.tasks


@scenario
async def test_no_more_streams_are_served_at_once_than_are_allowed() -> None:
    connection = Connection(http2=True, served=stuck)
    connection.feed(GREETING)
    for number in range(MOST_STREAMS + 3):
        connection.feed(headers(2 * number + 1, 1))
    for _ in range(10):
        await connection.settle()
        connection.transport.protocol.tick()
    assert len(connection.state.tasks) == MOST_STREAMS
    connection.transport.abort()
    await connection.settle()
