"""Answers in events: what is a part, when it came, and how the answer ended.

Tests bench/ringbatch/bench/load/stream_reference.py.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.bench.load.answers import BadAnswer, post
from ringbatch.bench.load.event_exchange import EventExchange, read_stream_head
from ringbatch.bench.load.event_stream import ChunkedBody, EventReader, is_part
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.outcome import CUT_OFF, EMPTY, WRONG
from ringbatch.bench.load.parts import Parts, PartTimes
from ringbatch.bench.load.stream_reference import StreamReference
from ringbatch.frontend.codec.event_stream import COMMENT, event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
QUESTION = post("x", "/", b"question")
TEXTS = st.lists(st.binary(max_size=40), max_size=6)


def chunks(*texts: bytes, ends: bool = True) -> bytes:
    """A body of chunks; an empty text is none."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(text), text) for text in texts if text)
    return body + (b"0\r\n\r\n" if ends else b"")


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The data in pieces, none of them empty."""
    at = [0, *sorted({place % len(data) for place in places} - {0}), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


# Chunks and events


@given(TEXTS, st.lists(st.integers(0, 400), max_size=12))
def test_a_body_is_the_same_wherever_its_bytes_are_cut(
    texts: list[bytes], places: list[int]
) -> None:
    body = ChunkedBody()
    pieces = cut(chunks(*texts), places)
    found = [body.take(piece) for piece in pieces]
    assert b"".join(found) == b"".join(texts)
    assert body.ended


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"zz\r\n", "a chunk without a size: b'zz'"),
        (b"0" * 17, "a chunk without a size"),
        (b"0\r\n\r\nmore", "more bytes behind the end"),
        (b"0\r\nX-Trailer: 1\r\n\r\n", "trailers"),
    ],
)
def test_bytes_that_are_no_chunk_are_described(data: bytes, words: str) -> None:
    with pytest.raises(BadAnswer, match=words):
        ChunkedBody().take(data)


def test_a_chunk_may_have_an_extension() -> None:
    assert ChunkedBody().take(b"3;name=value\r\nabc\r\n0\r\n\r\n") == b"abc"


@given(
    st.lists(st.sampled_from([b"{}", b"[DONE]", b'{"a": 1}', b"two\nlines"]), min_size=1),
    st.lists(st.integers(0, 400), max_size=12),
    st.booleans(),
)
def test_events_are_the_same_wherever_they_are_cut(
    data: list[bytes], places: list[int], crlf: bool
) -> None:
    text = b"".join(event(one) + COMMENT for one in data)
    if crlf:
        text = text.replace(b"\n", b"\r\n")
    reader = EventReader()
    found = [one for piece in cut(text, places) for one in reader.take(piece)]
    assert found == data


def test_an_event_may_have_more_than_data_and_data_no_space() -> None:
    text = b"event: message\nid: 7\ndata:1\n\n: wait\n\nevent: ping\n\ndata:2\n\ndata: 3"
    assert EventReader().take(text) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("data", "openai", "counts"),
    [
        (b'{"predictions":[1]}', False, True),
        (b"[DONE]", True, False),
        (b'{"choices":[{"index":0,"text":"a"}]}', True, True),
        (b'{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}', True, False),
        (b'{"choices":[{"delta":{"role":"assistant","content":""}}]}', True, False),
        (b'{"choices":[{"delta":{},"finish_reason":"stop"}]}', True, False),
        (b'{"choices":[],"usage":{}}', True, False),
        (b'{"choices":[{"text":"say \\"text\\":\\"\\""}]}', True, True),
        (b'{"error": "late"}', False, False),
        (b'{"error":{"message":"late"}}', True, False),
    ],
)
def test_an_event_is_a_part_or_not(data: bytes, openai: bool, counts: bool) -> None:
    assert is_part(data, openai=openai) is counts


# Heads


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "its content is nothing that it names"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n",
            "its content is application/json",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
            "its content is text/html",
        ),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "without a status"),
        (b"220 mail", "not HTTP/1.1"),
    ],
)
def test_an_answer_that_is_no_event_stream_is_described(head: bytes, words: str) -> None:
    with pytest.raises(BadAnswer, match=words):
        read_stream_head(head)


# Answers on a connection


class Client:
    """An exchange and its clock; requests count from 0."""

    def __init__(
        self, *bodies: bytes, compares: bool = False, openai: bool = False, end_ns: int = 1000
    ) -> None:
        self.now_ns = 0
        self.times = PartTimes(lambda: self.now_ns, end_ns)
        streams = [StreamReference.of(body, openai=openai) for body in bodies]
        requests = Requests([QUESTION], streams=streams, compares=compares)
        self.side = EventExchange(requests, self.times, openai=openai)
        self.asked = 0

    def ask(self) -> None:
        assert self.side.ask(0, self.asked) == QUESTION
        self.asked += 1

    def take(self, data: bytes, at_ns: int) -> int | None:
        self.now_ns = at_ns
        return self.side.take(data)

    def answer(self, *events: bytes) -> int | None:
        """The status of an answer whose events come at once."""
        self.ask()
        return self.take(HEAD + chunks(b"".join(events)), 10)

    def result(self) -> Parts:
        return self.times.result(range(self.asked), [0] * self.asked, 0)


def part(value: int) -> bytes:
    return event(b'{"batchId":"%d","predictions":[%d]}' % (value, value))


def test_parts_have_the_times_at_which_they_came() -> None:
    client = Client()
    client.ask()
    assert client.take(HEAD[:30], 5) is None
    assert client.take(HEAD[30:] + chunks(part(1)[:9], ends=False), 10) is None
    assert client.take(chunks(part(1)[9:], ends=False), 100) is None
    assert client.take(chunks(COMMENT, ends=False), 150) is None
    assert client.take(chunks(part(2) + part(3), ends=False), 300) is None
    assert client.take(chunks(part(4)), 320) == 200
    found = client.result()
    assert found.first_ns.tolist() == [100]
    assert found.longest_ns.tolist() == [200]
    assert found.counts.tolist() == [4]
    # Two parts of one piece have no gap.
    assert found.gaps.total == 3
    assert found.gaps.quantile_ns(1 / 3) == 0
    assert found.gaps.quantile_ns(2 / 3) == pytest.approx(20, rel=0.02)
    assert found.gaps.quantile_ns(1) == pytest.approx(200, rel=0.02)
    assert found.in_run == 4


def test_a_connection_takes_one_answer_after_the_other() -> None:
    client = Client()
    assert client.answer(part(1), part(2)) == 200
    assert client.answer(part(3)) == 200
    assert client.result().counts.tolist() == [2, 1]
    with pytest.raises(BadAnswer, match="no request"):
        client.take(HEAD, 20)


def test_parts_and_gaps_count_up_to_the_end_of_the_run() -> None:
    client = Client(end_ns=100)
    client.ask()
    for at_ns in (50, 150, 250):
        client.take(HEAD * (at_ns == 50) + chunks(part(1), ends=False), at_ns)
    found = client.result()
    assert found.in_run == 1
    # The gap that began in the run counts whole, and what began later does not.
    assert found.gaps.total == 1
    assert found.gaps.quantile_ns(1) == pytest.approx(100, rel=0.02)


def test_a_part_that_had_not_come_at_the_end_of_the_run_took_as_long() -> None:
    client = Client()
    client.ask()
    client.take(HEAD + chunks(part(1), ends=False), 50)
    client.ask()
    client.now_ns = 400
    found = client.result()
    assert found.first_ns.tolist() == [50, 400]
    assert found.longest_ns.tolist() == [350, 0]
    assert found.counts.tolist() == [1, 0]
    assert found.gaps.quantile_ns(1) == pytest.approx(350, rel=0.02)
    # Requests were due that long after the run's begin, which the clock has its own name for.
    assert client.times.result([1, 0], [30, 7], 3).first_ns.tolist() == [367, 40]


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((part(1), event(b'{"error": "the worker died"}')), CUT_OFF),
        ((event(b'{"error": "at once"}'),), CUT_OFF),
        ((COMMENT,), EMPTY),
        ((part(1),), 200),
    ],
)
def test_an_answer_ends_with_a_status_of_its_own(events: tuple[bytes, ...], status: int) -> None:
    client = Client()
    assert client.answer(*events) == status
    # What one answer was is forgotten in the next.
    assert client.answer(part(1)) == 200


@pytest.mark.parametrize("length", [b"Content-Length: 2", b"Transfer-Encoding: chunked"])
def test_a_refusal_has_its_status(length: bytes) -> None:
    client = Client()
    client.ask()
    body = b"{}" if length.startswith(b"Content") else chunks(b"data: {}\n\n")
    whole = b"HTTP/1.1 503 Busy\r\n%b\r\nConnection: close\r\n\r\n%b" % (length, body)
    assert client.take(whole[:-1], 5) is None
    assert client.take(whole[-1:], 6) == 503
    assert client.side.closes
    assert client.result().counts.tolist() == [0]


def test_fewer_parts_than_at_first_are_counted_and_if_compared_wrong() -> None:
    client = Client(part(1) + part(2))
    assert client.answer(part(1)) == 200
    assert client.answer(part(5), part(6)) == 200
    assert client.answer(part(1), event(b'{"error": "x"}')) == CUT_OFF
    assert client.result().short == 1
    client = Client(part(1) + part(2), compares=True)
    assert client.answer(part(1)) == WRONG
    assert client.answer(part(1), part(3)) == WRONG
    again = event(b'{"batchId":"another","predictions":[1.0001]}')
    assert client.answer(again, part(2)) == 200
    assert client.result().short == 0


def text(*words: str) -> bytes:
    parts = (
        b'{"id":"%d","choices":[{"text":"%b"}]}' % (n, w.encode()) for n, w in enumerate(words)
    )
    return b"".join(map(event, parts)) + event(b"[DONE]")


def test_texts_of_openai_s_events_are_compared_however_they_are_cut() -> None:
    client = Client(text("a ", "b ", "c"), compares=True, openai=True)
    assert client.answer(text("a b ", "c")) == 200
    assert client.answer(text("a b ")) == WRONG
    chat = b"".join(event(b'{"choices":[{"delta":{"content":"%b"}}]}' % w) for w in (b"a ", b"b c"))
    assert client.answer(chat) == 200
    assert client.answer(event(b"no JSON")) == WRONG
    # Tokens that come together are one event: nothing is short.
    client = Client(text("a ", "b ", "c"), openai=True)
    assert client.answer(text("a b c")) == 200
    assert client.result().short == 0


def test_each_request_for_events_may_have_a_trace_of_its_own() -> None:
    side = EventExchange(Requests([QUESTION]), PartTimes(lambda: 0, 1), Traces(7))
    asked = {side.ask(0, number) for number in range(2)}
    assert len(asked) == 2
    assert all(b"\r\ntraceparent: 00-" in one for one in asked)
