"""The memory of heads: it saves parsing, and changes nothing of what is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.head import VARYING, RequestHead
from ringbatch.frontend.http.head_framing import MAX_HEADERS
from ringbatch.frontend.http.head_meaning import SERVING, HeadParser
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.shm.model_spec import Forward, ModelSpec
from ringbatch.shm.tensor import Tensor

LIMIT = 1000
LINE = b"POST /v1/models/mnist:predict HTTP/1.1"
PLAIN = (b"Host: localhost:8080", b"Content-Length: 12")
TRACE = b"00-%032x-00f067aa0ba902b7-01"


def head(*lines: bytes, line: bytes = LINE) -> bytes:
    return b"\r\n".join([line, *lines, b"", b""])


@contextmanager
def parses() -> Iterator[list[bytes]]:
    """Yield the heads that are parsed during the block, rather than remembered."""
    found: list[bytes] = []

    def counted(parser: HeadParser, text: bytes) -> object:
        found.append(text)
        return parse(parser, text)

    parse = HeadParser.parse
    with patch.object(HeadParser, "parse", counted):
        yield found


VARIED = {
    "same": [head(*PLAIN)] * 2,
    "length": [head(b"Host: x", b"Content-Length: %d" % n) for n in (1, 22, 333)],
    "trace": [head(*PLAIN, b"traceparent: " + TRACE % n) for n in (1, 2, 3)],
    "id": [head(*PLAIN, b"X-Request-Id: %d" % n) for n in range(20)],
    "deadline": [head(*PLAIN, b"x-request-timeout: 0.%d" % n) for n in (1, 2)],
    "gateway": [
        head(
            b"host: models.example",
            b"x-forwarded-for: 10.0.0.%d, 10.1.1.1" % n,
            b"x-forwarded-proto: https",
            b"x-envoy-expected-rq-timeout-ms: %d" % n,
            b"forwarded: for=192.0.2.%d;proto=https" % n,
            b"x-b3-traceid: %032x" % n,
            b"tracestate: a=%d,b=2" % n,
            b"baggage: user=%d" % n,
            b"X-Amzn-Trace-Id: Root=1-%08x" % n,
            b"cookie: session=%d" % n,
            b"content-length: %d" % n,
            b"traceparent: " + TRACE % n,
        )
        for n in (1, 2)
    ],
    "lines-in-another-place": [
        head(*PLAIN, b"X-Request-Id: 1", b"User-Agent: a"),
        head(b"X-Request-Id: 2", *PLAIN, b"User-Agent: b"),
    ],
    "with-and-without": [head(*PLAIN), head(*PLAIN, b"traceparent: " + TRACE % 1)],
    "json-length": [
        head(
            *PLAIN,
            b"Inference-Header-Content-Length: %d" % n,
            line=b"POST /v2/models/mnist/infer HTTP/1.1",
        )
        for n in (1, 12)
    ],
}


@pytest.mark.parametrize("texts", VARIED.values(), ids=VARIED)
def test_lines_that_differ_from_request_to_request_are_parsed_once(texts: list[bytes]) -> None:
    fresh = [HeadReader(LIMIT).read(text) for text in texts]
    assert None not in fresh
    reader = HeadReader(LIMIT)
    with parses() as parsed:
        assert [reader.read(text) for text in texts] == fresh
    assert parsed == texts[:1]


OTHERS = {
    "host": (b"Host: a", b"Host: b"),
    "connection": (b"Connection: close", b"Connection: keep-alive"),
    "key": (b"X-API-Key: a", b"X-API-Key: b"),
    "authorization": (b"Authorization: Bearer a", b"Authorization: Bearer b"),
    "upgrade": (b"Upgrade: a", b"Upgrade: b"),
    "coding": (b"Accept-Encoding: gzip", b"Accept-Encoding: deflate"),
    "type": (b"Content-Type: a/b", b"Content-Type: a/cloudevents"),
    "timing": (b"X-Server-Timing: 1", b"X-Server-Timing: 0"),
    "load": (b"endpoint-load-metrics-format: text", b"endpoint-load-metrics-format: json"),
    "bytes-beyond-ASCII": (b"Accept: \xe9", b"Accept: \xea"),
    "twice": (b"X-Request-Id: a\r\nX-Request-Id: a", b"X-Request-Id: a\r\nX-Request-Id: b"),
}


@pytest.mark.parametrize("lines", OTHERS.values(), ids=OTHERS)
def test_lines_that_decide_the_way_of_serving_are_parsed_at_each_difference(
    lines: tuple[bytes, bytes],
) -> None:
    length = b"Content-Length: 1"
    host = () if lines[0].startswith(b"Host") else (b"Host: x",)
    texts = [head(*host, length, line) for line in lines]
    reader = HeadReader(LIMIT)
    with parses() as parsed:
        found = [reader.read(text) for text in texts]
    assert parsed == texts
    assert found == [HeadReader(LIMIT).read(text) for text in texts]


CONFUSABLE = {
    "a-byte-beyond-ASCII": (
        head(*PLAIN, b"Accept-Encoding: gzip", b"A: b\xe9"),
        head(*PLAIN, b"Accept-Encoding: gzip\xe9"),
    ),
    "a-second-length": (head(*PLAIN), head(*PLAIN, b"Content-Length: 1 2")),
    "a-second-length-that-is-odd": (head(*PLAIN), head(*PLAIN, b"Content-Length:\t\xe9")),
    "a-folded-line": (head(*PLAIN), head(*PLAIN, b"A: b", b" c")),
    "a-folded-length": (head(*PLAIN), head(*PLAIN[:1], b"Content-Length: 12", b" 3")),
    "a-carriage-return": (head(*PLAIN), head(*PLAIN, b"A: b\rContent-Length: 1")),
    "a-line-feed": (head(*PLAIN), head(*PLAIN, b"A: b\nContent-Length: 1")),
    "a-blank-before-the-colon": (head(*PLAIN), head(*PLAIN, b"Transfer-Encoding : chunked")),
    "a-line-before-the-first": (head(*PLAIN), b"\r\nA: b" + head(*PLAIN)),
    "many-lines": (head(*PLAIN, *[b"close:"] * 220), head(*PLAIN, *[b"close:", b"A:"] * 150)),
    "as-many-lines": (
        head(*PLAIN, *[b"close:"] * 220),
        head(*PLAIN, *[b"close:"] * 220, *[b"A:"] * 50),
    ),
}


@pytest.mark.parametrize("texts", CONFUSABLE.values(), ids=CONFUSABLE)
def test_no_head_is_taken_for_another(texts: tuple[bytes, bytes]) -> None:
    reader = HeadReader(LIMIT, compress_answers=True)
    for text in texts:
        assert reader.read(text) == HeadReader(LIMIT, compress_answers=True).read(text)


def test_ids_cost_no_other_client_its_place_in_the_memory() -> None:
    reader = HeadReader(LIMIT)
    with parses() as parsed:
        reader.read(head(*PLAIN, b"Accept-Encoding: gzip"))
        for number in range(5000):
            reader.read(head(*PLAIN, b"X-Request-Id: %d" % number, b"X-Number: %d" % number))
        reader.read(head(*PLAIN, b"Accept-Encoding: gzip"))
    assert len(parsed) == 2


def test_the_memory_is_bounded() -> None:
    reader = HeadReader(LIMIT)
    with parses() as parsed:
        for number in range(5000):
            reader.read(head(b"Host: %d" % number, b"Content-Length: 1"))
        reader.read(head(b"Host: 0", b"Content-Length: 1"))
    assert len(parsed) == 5001


def test_a_long_head_is_not_remembered() -> None:
    reader, text = HeadReader(LIMIT), head(*PLAIN, b"Content-Type: " + b"a" * 4000)
    with parses() as parsed:
        assert reader.read(text) == reader.read(text) is not None
    assert parsed == [text, text]


@pytest.mark.parametrize("size", [MAX_HEADERS - 2, MAX_HEADERS - 1])
def test_lines_that_are_cut_out_count(size: int) -> None:
    text = head(*PLAIN, *[b"A: b"] * size)
    reader = HeadReader(LIMIT)
    reader.read(head(*PLAIN))
    assert (reader.read(text) is None) == (size > MAX_HEADERS - 2)


def test_forgotten_heads_are_parsed_again() -> None:
    reader, text = HeadReader(LIMIT), head(*PLAIN)
    with parses() as parsed:
        reader.read(text)
        reader.forget()
        reader.read(text)
    assert parsed == [text, text]


def forwarding(*headers: str) -> Origins:
    spec = ModelSpec(
        index=0,
        name="mnist",
        platform="http",
        inputs=(Tensor("x", "FP32", [1]),),
        outputs=(Tensor("y", "FP32", [1]),),
        max_batch_size=1,
        max_latency_ns=0,
        timeout_ns=1,
        policy="eager",
        workers=(0,),
        forward=Forward(path="/v1/models/a:predict", headers=headers, any_path=False),
    )
    return Origins([spec])


@pytest.mark.parametrize("name", ["x-tenant", "x-request-id", "traceparent", "content-length"])
def test_a_header_that_is_passed_on_is_never_that_of_another_request(name: str) -> None:
    reader = HeadReader(LIMIT, origins=forwarding(name))
    for number in (1, 2, 2):
        others = [line for line in PLAIN if not line.lower().startswith(name.encode())]
        found = reader.read(head(*others, b"%b: %d" % (name.encode(), number)))
        assert found is not None
        assert b"%b: %d" % (name.encode(), number) in found.origin


NAMES = sorted({*SERVING, *VARYING, b"accept", b"x-a", b"x-b"})
LINES = st.one_of(
    st.sampled_from(PLAIN),
    st.tuples(
        st.sampled_from([*NAMES, *(name.upper() for name in NAMES)]),
        st.sampled_from([b":", b": ", b":\t", b" :", b": \t"]),
        st.one_of(
            st.sampled_from([b"1", b"12", b"gzip", b"close", b"a b", b"", b"\xe9", TRACE % 1]),
            st.binary(max_size=3),
        ),
        st.sampled_from([b"", b" ", b"\t"]),
    ).map(b"".join),
)
HEADS = st.lists(LINES, max_size=6).map(lambda lines: head(*PLAIN, *lines))


@given(st.lists(HEADS, min_size=2, max_size=6))
def test_heads_read_before_change_nothing(texts: list[bytes]) -> None:
    reader = HeadReader(LIMIT, compress_answers=True)
    found: list[RequestHead | None] = [reader.read(text) for text in texts]
    assert found == [HeadReader(LIMIT, compress_answers=True).read(text) for text in texts]


@given(HEADS, st.data())
def test_a_head_that_differs_in_some_lines_is_read_as_by_a_new_reader(
    text: bytes, data: st.DataObject
) -> None:
    reader = HeadReader(LIMIT)
    reader.read(text)
    lines = text[:-4].split(b"\r\n")
    place = data.draw(st.integers(1, len(lines)))
    changed = data.draw(st.sampled_from(["added", "left out", "other"]))
    fresh = [] if changed == "left out" else [data.draw(LINES)]
    lines[place : place + (changed != "added")] = fresh
    other = head(*lines[1:], line=lines[0])
    assert reader.read(other) == HeadReader(LIMIT).read(other)
