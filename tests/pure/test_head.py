"""Heads of requests on the fast lane: those that it takes, and the fields that it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.head_framing import MAX_HEADERS
from ringbatch.frontend.http.head_reader import HeadReader

LIMIT = 1000
LINE = b"POST /v1/models/mnist:predict HTTP/1.1"
PLAIN = (b"Host: localhost:8080", b"Content-Length: 12")


def head(*lines: bytes, line: bytes = LINE) -> bytes:
    return b"\r\n".join([line, *lines, b"", b""])


def head_of(text: bytes, *, keep_alive: bool = True, length: int = 12) -> RequestHead:
    size = len(text) + length
    return RequestHead("mnist", len(text), length, size, keep_alive, origin=text)


TAKEN = {
    "plain": head(*PLAIN),
    "query": head(*PLAIN, line=b"POST /v1/models/mnist:predict?a=b%20c HTTP/1.1"),
    "other-case": head(b"hOST: x", b"CONTENT-length:12"),
    "blanks-around-values": head(b"Host:  x\t", b"Content-Length: \t12  "),
    "usual-client": head(*PLAIN, b"User-Agent: curl/8", b"Accept: */*", b"Content-Type: a/b"),
    "keep-alive": head(*PLAIN, b"Connection: Keep-Alive"),
    "identity": head(*PLAIN, b"Content-Encoding: identity"),
    "leading-zeros": head(b"Host: x", b"Content-Length: 0012"),
    "java": head(
        *PLAIN,
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
    ),
    "websocket": head(*PLAIN, b"Connection: keep-alive,upgrade", b"Upgrade: websocket"),
    "upgrade-alone": head(*PLAIN, b"Upgrade: TLS/1.0"),
    "as-many-lines-as-may-be": head(*PLAIN, *[b"A: b"] * (MAX_HEADERS - 2)),
    "same-header-twice": head(*PLAIN, b"Accept: a", b"Accept: b"),
}

LEFT = {
    "other-method": head(*PLAIN, line=b"PUT /v1/models/mnist:predict HTTP/1.1"),
    "lower-case-method": head(*PLAIN, line=b"post /v1/models/mnist:predict HTTP/1.1"),
    "http-1.0": head(*PLAIN, line=b"POST /v1/models/mnist:predict HTTP/1.0"),
    "http-2": head(*PLAIN, line=b"POST /v1/models/mnist:predict HTTP/2.0"),
    "escaped-colon": head(*PLAIN, line=b"POST /v1/models/mnist%3Apredict HTTP/1.1"),
    "escaped-name": head(*PLAIN, line=b"POST /v1/models/mn%69st:predict HTTP/1.1"),
    "other-verb": head(*PLAIN, line=b"POST /v1/models/mnist:explain HTTP/1.1"),
    "verb-and-more": head(*PLAIN, line=b"POST /v1/models/mnist:predicted HTTP/1.1"),
    "trailing-slash": head(*PLAIN, line=b"POST /v1/models/mnist:predict/ HTTP/1.1"),
    "no-version": head(*PLAIN, line=b"POST /v1/models/mnist/versions/:predict HTTP/1.1"),
    "odd-version": head(*PLAIN, line=b"POST /v1/models/mnist/versions/a,b:predict HTTP/1.1"),
    "no-name": head(*PLAIN, line=b"POST /v1/models/:predict HTTP/1.1"),
    "long-name": head(*PLAIN, line=b"POST /v1/models/" + b"a" * 129 + b":predict HTTP/1.1"),
    "odd-name": head(*PLAIN, line=b"POST /v1/models/a,b:predict HTTP/1.1"),
    "fragment": head(*PLAIN, line=b"POST /v1/models/mnist:predict#a HTTP/1.1"),
    "fragment-in-query": head(*PLAIN, line=b"POST /v1/models/mnist:predict?a#b HTTP/1.1"),
    "absolute-form": head(*PLAIN, line=b"POST http://x/v1/models/mnist:predict HTTP/1.1"),
    "two-blanks": head(*PLAIN, line=b"POST  /v1/models/mnist:predict HTTP/1.1"),
    "no-length": head(b"Host: x"),
    "two-lengths": head(*PLAIN, b"Content-Length: 13"),
    "same-length-twice": head(*PLAIN, b"Content-Length: 12"),
    "length-list": head(b"Host: x", b"Content-Length: 12, 12"),
    "length-plus": head(b"Host: x", b"Content-Length: +5"),
    "length-minus": head(b"Host: x", b"Content-Length: -5"),
    "length-hex": head(b"Host: x", b"Content-Length: 0x5"),
    "length-underscore": head(b"Host: x", b"Content-Length: 1_2"),
    "length-words": head(b"Host: x", b"Content-Length: 1 2"),
    "length-empty": head(b"Host: x", b"Content-Length:"),
    "length-beyond-limit": head(b"Host: x", b"Content-Length: 1001"),
    "length-huge": head(b"Host: x", b"Content-Length: " + b"9" * 40),
    "chunked": head(b"Host: x", b"Transfer-Encoding: chunked"),
    "length-and-chunked": head(*PLAIN, b"Transfer-Encoding: chunked"),
    "length-and-identity": head(*PLAIN, b"Transfer-Encoding: identity"),
    "expect": head(*PLAIN, b"Expect: 100-continue"),
    "upgrade-and-chunked": head(
        b"Host: x", b"Connection: upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked"
    ),
    "upgrade-and-two-lengths": head(
        *PLAIN, b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 13"
    ),
    "connection-of-a-header": head(*PLAIN, b"Connection: content-length"),
    "gzip": head(*PLAIN, b"Content-Encoding: gzip"),
    "cloudevents": head(*PLAIN, b"Content-Type: application/cloudevents+json"),
    "connection-list": head(*PLAIN, b"Connection: close, x"),
    "connection-twice": head(*PLAIN, b"Connection: close", b"Connection: keep-alive"),
    "no-host": head(b"Content-Length: 12"),
    "two-hosts": head(*PLAIN, b"Host: y"),
    "blank-before-colon": head(b"Host: x", b"Content-Length : 12"),
    "blank-in-name": head(*PLAIN, b"A b: c"),
    "no-colon": head(*PLAIN, b"Nonsense"),
    "folded-line": head(*PLAIN, b"X: a", b" Content-Length: 5"),
    "folded-with-tab": head(*PLAIN, b"X: a", b"\tb"),
    "bare-lf": head(b"Host: x\nContent-Length: 12"),
    "bare-cr": head(*PLAIN, b"X: a\rContent-Length: 5"),
    "nul": head(*PLAIN, b"X: a\0b"),
    "all-bare-lf": head(*PLAIN).replace(b"\r\n", b"\n"),
    "leading-empty-line": b"\r\n" + head(*PLAIN),
    "too-many-lines": head(*PLAIN, *[b"A: b"] * (MAX_HEADERS - 1)),
    "no-end": head(*PLAIN)[:-2],
    "with-body": head(*PLAIN) + b"x",
    "two-heads": head(*PLAIN) + head(*PLAIN),
    "empty": b"",
    "only-the-end": b"\r\n\r\n",
}


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_a_plain_request_is_taken(text: bytes) -> None:
    assert HeadReader(LIMIT).read(text) == head_of(text)


def test_an_upgrade_of_a_request_without_a_body_is_ignored_too() -> None:
    text = head(b"Host: x", b"Content-Length: 0", b"Connection: Upgrade", b"Upgrade: h2c")
    assert HeadReader(LIMIT).read(text) == head_of(text, length=0)


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_anything_else_is_left_to_the_other_path(text: bytes) -> None:
    assert HeadReader(LIMIT).read(text) is None


@pytest.mark.parametrize("wishes", [b"Close", b"close, Upgrade", b"keep-alive ,\tclose"])
def test_connection_close_is_understood(wishes: bytes) -> None:
    text = head(*PLAIN, b"Connection: " + wishes, b"Upgrade: h2c")
    assert HeadReader(LIMIT).read(text) == head_of(text, keep_alive=False)


def test_a_body_of_just_the_limit_is_taken() -> None:
    text = head(b"Host: x", b"Content-Length: 1000")
    assert HeadReader(LIMIT).read(text) == head_of(text, length=1000)


@given(st.sampled_from(sorted(TAKEN)), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_head_with_bytes_put_into_it_is_left_or_still_ends_where_it_ends(
    name: str, place: int, noise: bytes
) -> None:
    text = TAKEN[name]
    text = text[:place] + noise + text[place:]
    found = HeadReader(LIMIT).read(text)
    assert found is None or (
        found.head_bytes == len(text)
        and text.endswith(b"\r\n\r\n")
        and text.lower().count(b"content-length") == 1
    )


@pytest.mark.parametrize(
    "lines",
    [
        (b"X-Request-Id: a b",),
        (b"X-Request-Id: " + b"x" * 129,),
        (b"X-Request-Id: a", b"x-request-id: b"),
        (b"X-Request-Id: \xc3\xa9",),
        (b"X-Request-Id:",),
    ],
)
def test_an_invalid_id_is_as_if_there_were_none(lines: tuple[bytes, ...]) -> None:
    found = HeadReader(LIMIT).read(head(*PLAIN, *lines))
    assert found is not None
    assert found.request_id == b""


@pytest.mark.parametrize(
    ("lines", "coding"),
    [
        ((), None),
        ((b"Accept-Encoding: gzip, deflate",), "gzip"),
        ((b"Accept-Encoding: br", b"Accept-Encoding: deflate"), "deflate"),
        ((b"Accept-Encoding: identity, gzip",), None),
        ((b"Accept-Encoding: \xff",), None),
    ],
)
def test_accepted_codings_are_read_if_answers_are_compressed(
    lines: tuple[bytes, ...], coding: str | None
) -> None:
    text = head(*PLAIN, *lines)
    for _ in range(2):
        assert HeadReader(LIMIT).read(text) == head_of(text)
        compressing = HeadReader(LIMIT, compress_answers=True)
        assert compressing.read(text) == head_of(text)._replace(coding=coding)


def test_a_head_that_refuses_plain_answers_is_left_if_answers_are_compressed() -> None:
    text = head(*PLAIN, b"Accept-Encoding: gzip, identity;q=0")
    assert HeadReader(LIMIT).read(text) == head_of(text)
    assert HeadReader(LIMIT, compress_answers=True).read(text) is None
