"""Ends of an HTTP/2 connection and of its streams: by their client, by a stop, by time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http2_client import Client, replying, stuck
from http2_harness import GREETING, data, frame, frames_of, headers, settings, widen
from http_harness import IDLE_TIMEOUT_S, Connection, scenario

from ringbatch.frontend.http.phases import HEAD_TIMEOUT_S, WRITE_TIMEOUT_S
from ringbatch.frontend.http2.frames import ACK, END_STREAM, GOAWAY, PING, PREFACE, RST_STREAM
from ringbatch.frontend.streams.served_connection import LEAVE_S


@scenario
async def test_an_application_learns_that_its_client_has_gone() -> None:
    client = Client(served=stuck)
    number = client.begin(end=True)
    await client.send()
    assert len(client.connection.state.tasks) == 1
    client.h2.reset_stream(number)
    await client.send()
    assert not client.connection.state.tasks
    client.begin(end=True)
    await client.send()
    client.connection.transport.abort()
    await client.connection.settle()
    assert not client.connection.state.tasks
    assert not client.connection.state.connections


async def _listening(_scope: Any, receive: Any, send: Any) -> None:
    """Wait for the client's end while answering, as Starlette does."""

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def answer() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(100), "more_body": False})

    await asyncio.gather(until_gone(), answer())


@pytest.mark.parametrize("first", ["taken", "left", "unfinished"])
def test_an_application_that_listens_while_it_answers_hears_of_the_end(first: str) -> None:
    async def run() -> None:
        connection = Connection(http2=True, served=_listening)
        connection.feed(PREFACE + settings(window=1) + headers(1, END_STREAM))
        await connection.settle()
        assert len(connection.state.tasks) == 1
        if first == "left":
            connection.feed(frame(RST_STREAM, 0, 1, bytes(4)))
        else:
            connection.feed(widen(1, 100))
        await connection.settle()
        assert not connection.state.tasks
        # Where nothing has to wait, and where the body has yet to end.
        connection.feed(settings(window=100) + headers(3, 0 if first == "unfinished" else 1))
        await connection.settle()
        assert not connection.state.tasks

    asyncio.run(run())


@scenario
async def test_a_stop_serves_requests_that_have_begun() -> None:
    client = Client()
    number = client.begin()
    await client.send()
    transport = client.connection.transport
    transport.protocol.leave()
    transport.protocol.shutdown()
    # The library takes GOAWAY for the end of all streams, so it has no more to say.
    goaway, ping = frames_of(transport.written)
    assert (goaway.kind, int.from_bytes(goaway.payload[4:8], "big")) == (GOAWAY, 0)
    client.connection.feed(frame(PING, ACK, 0, ping.payload))
    client.connection.feed(data(number, b"body", END_STREAM) + headers(number + 2, END_STREAM))
    await client.connection.settle()
    assert b"falcon" in transport.written
    assert [body for _, body in client.connection.seen] == [b"body"]
    assert transport.closed


@scenario
async def test_a_stop_does_not_wait_for_a_client_that_says_nothing() -> None:
    client = Client()
    await client.ask()
    protocol = client.connection.transport.protocol
    protocol.shutdown()
    assert not client.connection.transport.closed
    await asyncio.sleep(LEAVE_S + 0.1)
    assert client.connection.transport.closed


@scenario
async def test_nothing_is_written_to_a_connection_that_is_closed() -> None:
    client = Client()
    await client.ask()
    transport = client.connection.transport
    transport.protocol.shutdown()
    (ping,) = [each for each in frames_of(transport.written) if each.kind == PING]
    # Its client is still taking the last answer.
    transport.left_bytes = 1
    client.connection.feed(frame(PING, ACK, 0, ping.payload))
    assert transport.closing
    transport.written = b""
    transport.protocol.data_received(frame(PING, 0, 0, bytes(8)))
    assert transport.written == b""


def ends_after(seconds: int) -> Callable[[Connection], Awaitable[None]]:
    async def play(connection: Connection) -> None:
        for _ in range(seconds - 1):
            connection.transport.protocol.tick()
            await connection.settle()
        assert not connection.transport.closed
        for _ in range(3):
            if not connection.transport.closed:
                connection.transport.protocol.tick()
        assert connection.transport.closed

    return play


@scenario
async def test_half_a_greeting_and_half_a_frame_end() -> None:
    for given in (PREFACE[:-3], GREETING + headers(1)[:-3]):
        connection = Connection(http2=True)
        connection.feed(given)
        await ends_after(HEAD_TIMEOUT_S)(connection)


@scenario
async def test_an_idle_connection_ends() -> None:
    client = Client()
    await client.ask()
    await ends_after(IDLE_TIMEOUT_S)(client.connection)


@scenario
async def test_a_client_that_takes_nothing_ends() -> None:
    connection = Connection(http2=True, served=replying(200, bytes(30_000)))
    connection.feed(GREETING + headers(1, 1))
    await connection.settle()
    connection.transport.left_bytes = 1 << 20
    connection.transport.protocol.pause_writing()
    await ends_after(WRITE_TIMEOUT_S)(connection)


@scenario
async def test_a_stream_that_takes_nothing_ends_alone() -> None:
    client = Client(served=replying(200, bytes(30_000)), window=100)
    number = client.begin(end=True)
    client.connection.feed(client.h2.data_to_send())
    await client.connection.settle()
    for _ in range(WRITE_TIMEOUT_S + 3):
        client.connection.transport.protocol.tick()
        # Otherwise the client would count as gone.
        client.connection.feed(frame(PING, 0, 0, bytes(8)))
        await client.connection.settle()
    assert not client.connection.state.tasks
    assert client.connection.transport.protocol._serving == {}
    assert not client.connection.transport.closed
    await client.take()
    assert client.answers[number].reset == 8
