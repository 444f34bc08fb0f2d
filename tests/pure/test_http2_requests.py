"""Header fields and lengths of requests over HTTP/2, by RFC 9113."""

import pytest
from http2_harness import (
    USUAL,
    Served,
    block,
    call,
    data,
    headers,
)

from ringbatch.frontend.http2.frames import (
    END_STREAM,
    PROTOCOL_ERROR,
)
from ringbatch.frontend.http2.header_rules import request_of

GOOD_FIELDS = [
    [*USUAL, (b"te", b"trailers")],
    [*USUAL, (b"host", b"x")],
    [*USUAL[:3], (b"host", b"y")],
    [*USUAL, (b"content-length", b"0")],
    [*USUAL, (b"x", b"")],
    [*USUAL, (b"x", "é".encode())],
    list(reversed(USUAL)),
    USUAL[:3],
]

BAD_FIELDS = {
    "capital": [*USUAL, (b"X", b"1")],
    "empty-name": [*USUAL, (b"", b"1")],
    "space-in-name": [*USUAL, (b"a b", b"1")],
    "colon-in-name": [*USUAL, (b"a:", b"1")],
    "newline": [*USUAL, (b"x", b"a\nb")],
    "return": [*USUAL, (b"x", b"a\rb")],
    "nul": [*USUAL, (b"x", b"a\0b")],
    "leading-space": [*USUAL, (b"x", b" a")],
    "trailing-tab": [*USUAL, (b"x", b"a\t")],
    "unknown-pseudo": [*USUAL, (b":protocol", b"x")],
    "status": [*USUAL, (b":status", b"200")],
    "pseudo-late": [*USUAL[:3], (b"x", b"1"), USUAL[3]],
    "twice": [*USUAL, USUAL[2]],
    "no-method": USUAL[1:],
    "no-scheme": [USUAL[0], *USUAL[2:]],
    "no-path": [*USUAL[:2], USUAL[3]],
    "empty-path": [*USUAL[:2], (b":path", b"")],
    "path-newline": [*USUAL[:2], (b":path", b"/\n")],
    "connection": [*USUAL, (b"connection", b"close")],
    "keep-alive": [*USUAL, (b"keep-alive", b"1")],
    "proxy-connection": [*USUAL, (b"proxy-connection", b"1")],
    "transfer-encoding": [*USUAL, (b"transfer-encoding", b"chunked")],
    "upgrade": [*USUAL, (b"upgrade", b"h2c")],
    "te": [*USUAL, (b"te", b"gzip")],
    "length-words": [*USUAL, (b"content-length", b"ten")],
    "length-sign": [*USUAL, (b"content-length", b"+1")],
    "other-host": [*USUAL, (b"host", b"y")],
    "hosts-differ": [*USUAL[:3], (b"host", b"y"), (b"host", b"z")],
    "lengths-differ": [*USUAL, (b"content-length", b"0"), (b"content-length", b"1")],
}


@pytest.mark.parametrize("fields", GOOD_FIELDS)
def test_allowed_fields_of_a_request(fields: list[tuple[bytes, bytes]]) -> None:
    assert Served().one(headers(1, END_STREAM, block(fields=fields))).ended


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_forbidden_fields_of_a_request(case: str) -> None:
    served = Served()
    assert served.reset(headers(1, 0, block(fields=BAD_FIELDS[case]))) == (1, PROTOCOL_ERROR)
    assert served.connection.streams == {}
    assert served.one(call(3)).ended


@pytest.mark.parametrize("size", [3, 5])
def test_a_body_has_its_announced_length(size: int) -> None:
    served = Served()
    head = headers(1, 0, block((b"content-length", b"4")))
    assert served.reset(head + data(1, bytes(size), END_STREAM)) == (1, PROTOCOL_ERROR)
    head = headers(3, END_STREAM, block((b"content-length", b"4")))
    assert served.reset(head) == (3, PROTOCOL_ERROR)
    head = headers(5, 0, block((b"content-length", b"4")))
    assert served.one(head + data(5, bytes(4), END_STREAM)).ended


def test_a_repeated_length_is_passed_on_once() -> None:
    length = (b"content-length", b"4")
    found = request_of([*USUAL, length, (b"x", b"1"), length])
    assert (found.fields, found.content_length) == ([length, (b"x", b"1")], 4)
