"""How a connection comes to HTTP/2: its greeting, or a request over HTTP/1.1 that asks for it."""

import asyncio
import base64

import pytest
from http2_client import Answer, Client
from http_harness import Connection, request, scenario

from ringbatch.frontend.http2.frames import PREFACE


@scenario
async def test_a_method_that_begins_like_the_greeting_is_http_1s() -> None:
    connection = Connection(http2=True)
    for byte in b"PROPFIND / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":
        connection.feed(bytes((byte,)))
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")


@scenario
async def test_where_it_is_not_configured_the_greeting_is_a_bad_request() -> None:
    connection = Connection()
    connection.feed(PREFACE)
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 400")
    assert connection.transport.closed


def upgrading(*lines: bytes, settings: bytes = b"") -> bytes:
    """A request over HTTP/1.1 that would rather go on over HTTP/2."""
    text = base64.urlsafe_b64encode(settings).rstrip(b"=")
    return b"\r\n".join(
        [
            b"GET /p HTTP/1.1",
            b"Host: here",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: " + text,
            *lines,
            b"",
            b"",
        ]
    )


@scenario
async def test_a_request_that_asks_for_h2c_is_answered_over_http_2() -> None:
    client = Client(upgrade=True)
    settings = client.h2.initiate_upgrade_connection()
    assert isinstance(settings, bytes)
    client.answers[1] = Answer()
    head = upgrading(b"X-Own: 1").replace(b"HTTP2-Settings: ", b"HTTP2-Settings: " + settings, 1)
    client.connection.feed(head)
    await client.connection.settle()
    switching, _, rest = client.connection.transport.written.partition(b"\r\n\r\n")
    assert switching == (b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c")
    client.connection.transport.written = rest
    await client.send()
    assert client.answers[1].body == b"falcon"
    assert client.connection.headers == [{b"host": b"here", b"x-own": b"1"}]
    assert (await client.ask(b"more")).status == 200


@pytest.mark.parametrize(
    "data",
    [
        upgrading(b"Content-Length: 2") + b"{}",
        upgrading(b"HTTP2-Settings: AAAA"),
        upgrading(settings=b"12345"),
        upgrading().replace(b"Upgrade, HTTP2", b"HTTP2"),
        upgrading().replace(b"h2c", b"h3"),
        upgrading().replace(b"h2c\r\nHTTP2-Settings: ", b"h2c\r\nHTTP2-Settings: !!"),
    ],
)
def test_a_wish_that_is_not_beyond_doubt_is_passed_over(data: bytes) -> None:
    async def run() -> None:
        connection = Connection(http2=True)
        connection.feed(data)
        await connection.settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 200"), (
            connection.transport.written
        )

    asyncio.run(run())


@scenario
async def test_a_wish_without_a_sound_host_is_refused_as_over_http_1() -> None:
    connection = Connection(http2=True)
    two = upgrading().replace(b"Host: here\r\n", b"Host: here\r\nHost: there\r\n")
    connection.feed(two)
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 400")


@scenario
async def test_over_tls_nobody_asks_for_h2c() -> None:
    connection = Connection(http2=True)
    connection.transport.extra["sslcontext"] = object()
    connection.feed(upgrading())
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")


@scenario
async def test_settings_of_a_wish_that_are_wrong_end_the_connection() -> None:
    connection = Connection(http2=True)
    connection.feed(upgrading(settings=b"\0\4\xff\xff\xff\xff"))
    await connection.settle()
    assert b"101 Switching" in connection.transport.written
    assert connection.transport.closed
    assert not connection.seen


@scenario
async def test_what_is_no_http_2_behind_the_greeting_ends_with_the_reason() -> None:
    connection = Connection(http2=True)
    connection.feed(PREFACE + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await connection.settle()
    assert connection.transport.closed
    assert b"a frame has" in connection.transport.written


@scenario
async def test_a_kept_connection_of_http_1_stays_one() -> None:
    connection = Connection(http2=True, at_once=True)
    connection.feed(request(b"{}"))
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")
