"""Start of HTTP/2: a connection switches to it by its preface alone."""

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


@scenario
async def test_a_request_that_asks_for_h2c_is_answered_over_http_1() -> None:
    """RFC 9113 deprecates that upgrade (section 3.1); a server may ignore it (RFC 9110, 7.8)."""
    connection = Connection(http2=True)
    wish = (
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABkAAQAAP__",
    )
    connection.feed(b"\r\n".join([b"GET /p HTTP/1.1", b"Host: x", *wish, b"", b""]))
    connection.feed(request(b"[]", *wish, path=b"/next"))
    await connection.settle()
    assert connection.transport.written.count(b"HTTP/1.1 200") == 2
    assert b"101" not in connection.transport.written
    assert connection.seen == [("GET /p", b""), ("POST /next", b"[]")]
    assert not connection.transport.closed


@scenario
async def test_bytes_that_are_no_http_2_behind_the_greeting_end_with_the_reason() -> None:
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
