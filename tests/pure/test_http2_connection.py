"""What a client may send on a connection of HTTP/2, and what becomes of it, by RFC 9113."""

import random

import pytest
from hpack import Encoder
from http2_harness import (
    GREETING,
    USUAL,
    Served,
    block,
    call,
    data,
    frame,
    headers,
    settings,
    widen,
)

from ringbatch.frontend.http2 import connection as http2_connection
from ringbatch.frontend.http2.connection import (
    CONNECTION_ROOM,
    FIELDS_AT_ONCE,
    MOST_PIECES,
    STREAM_ROOM,
)
from ringbatch.frontend.http2.frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
)
from ringbatch.frontend.http2.header_text import NO_TABLE, STATUS_200, field
from ringbatch.frontend.http2.outgoing import MOST_STREAMS
from ringbatch.frontend.http2.patience import FREE_FIELDS, FREE_LIST_BYTES, MOST, STREAMS

HEAD = STATUS_200 + field(b"content-type", b"t")
TRAILERS = field(b"end", b"0")
WORD = (1).to_bytes(4, "big")
TIMES = 40_000


def body_of(served: Served) -> bytes:
    return b"".join(one.payload for one in served.said() if one.kind == DATA)


# Greeting (3.4)


def test_a_greeting_is_answered_with_settings_and_a_window() -> None:
    said = Served().opening
    assert [(one.kind, one.flags) for one in said] == [
        (SETTINGS, 0),
        (WINDOW_UPDATE, 0),
        (SETTINGS, ACK),
    ]


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"X", b"PRI * HTTP/2.0\r\n\r\nSX"])
def test_what_is_not_http2_ends_the_connection(sent: bytes) -> None:
    assert Served(b"").refused(sent) == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "first", [frame(PING, 0, 0, bytes(8)), headers(1), data(1, b"x"), widen(0, 1)]
)
def test_settings_come_first(first: bytes) -> None:
    assert Served(b"").refused(PREFACE + first) == PROTOCOL_ERROR


def test_it_does_not_matter_how_bytes_are_cut() -> None:
    sent = GREETING + call(1, b"a" * 300) + call(3) + frame(PING, 0, 0, b"12345678")
    for seed in range(30):
        chance, served, streams = random.Random(seed), Served(b""), {}
        at = 0
        while at < len(sent):
            size = chance.choice([1, 2, 9, 50, 400])
            streams.update({s.number: s for s in served.receive(sent[at : at + size])})
            at += size
        assert not served.connection.unfinished
        assert [b"".join(streams[n].pieces) for n in (1, 3)] == [b"a" * 300, b"body"]
        assert all(stream.ended for stream in streams.values())
        assert served.said()[-1].payload == b"12345678"


# Requests


def test_a_request_and_its_answer() -> None:
    served = Served()
    stream = served.one(call(1))
    assert (stream.number, stream.pieces, stream.ended) == (1, [b"body"], True)
    assert (stream.head.method, stream.head.path) == (b"POST", b"/p")
    served.connection.answer(stream, HEAD, b"answer", TRAILERS)
    said = [(one.kind, one.flags, one.stream, one.payload) for one in served.said()]
    assert said == [
        (HEADERS, END_HEADERS, 1, HEAD),
        (DATA, 0, 1, b"answer"),
        (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
    ]
    assert (stream.gone, served.connection.streams) == (True, {})


def test_an_answer_before_the_end_of_the_body_tells_the_client_to_stop() -> None:
    served = Served()
    stream = served.one(headers(1) + data(1, b"a"))
    served.connection.end(stream, HEAD)
    assert [(one.kind, one.stream) for one in served.said()] == [(HEADERS, 1), (RST_STREAM, 1)]
    # What was on its way does no harm, and makes its way through the header table.
    assert served.receive(data(1, b"b") + headers(1, END_STREAM)) == []
    assert served.one(call(3)).number == 3


def test_a_body_may_come_in_many_pieces_and_end_with_trailers() -> None:
    served = Served()
    stream = served.one(headers(1) + data(1, b"a" * 40))
    assert not stream.ended
    again = served.one(data(1, b"b" * 40) + headers(1, END_STREAM, block(fields=[(b"t", b"1")])))
    assert again is stream
    assert (stream.pieces, stream.ended) == ([b"a" * 40, b"b" * 40], True)


@pytest.mark.parametrize(
    ("trailers", "flags"),
    [(block(fields=[(b"t", b"1")]), 0), (block(), END_STREAM), (block(fields=[(b"T", b"1")]), 1)],
)
def test_trailers_end_a_stream_and_have_no_pseudo_headers(trailers: bytes, flags: int) -> None:
    served = Served()
    served.receive(headers(1))
    assert served.reset(headers(1, flags, trailers)) == (1, PROTOCOL_ERROR)


# Fields (8.2, 8.3)


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
def test_what_a_request_may_say(fields: list[tuple[bytes, bytes]]) -> None:
    assert Served().one(headers(1, END_STREAM, block(fields=fields))).ended


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_what_no_request_may_say(case: str) -> None:
    served = Served()
    assert served.reset(headers(1, 0, block(fields=BAD_FIELDS[case]))) == (1, PROTOCOL_ERROR)
    assert served.connection.streams == {}
    assert served.one(call(3)).ended


@pytest.mark.parametrize("size", [3, 5])
def test_a_body_has_the_length_that_was_said(size: int) -> None:
    served = Served()
    head = headers(1, 0, block((b"content-length", b"4")))
    assert served.reset(head + data(1, bytes(size), END_STREAM)) == (1, PROTOCOL_ERROR)
    head = headers(3, END_STREAM, block((b"content-length", b"4")))
    assert served.reset(head) == (3, PROTOCOL_ERROR)
    head = headers(5, 0, block((b"content-length", b"4")))
    assert served.one(head + data(5, bytes(4), END_STREAM)).ended


# Header blocks (4.3, 6.10)


def test_a_block_may_come_in_pieces() -> None:
    served, whole = Served(), block((b"x", b"y" * 100))
    sent = frame(HEADERS, END_STREAM, 1, whole[:10]) + frame(CONTINUATION, 0, 1, whole[10:50])
    assert served.receive(sent) == []
    assert served.connection.unfinished
    stream = served.one(frame(CONTINUATION, END_HEADERS, 1, whole[50:]))
    assert (stream.ended, stream.head.fields) == (True, [(b"x", b"y" * 100)])
    assert not served.connection.unfinished


@pytest.mark.parametrize(
    "between",
    [
        frame(PING, 0, 0, bytes(8)),
        data(1, b"x"),
        headers(3),
        frame(CONTINUATION, END_HEADERS, 3, b""),
        frame(0x77, 0, 1, b""),
    ],
)
def test_nothing_comes_between_the_pieces_of_a_block(between: bytes) -> None:
    assert Served().refused(frame(HEADERS, 0, 1, block()) + between) == PROTOCOL_ERROR


def test_nothing_is_continued_that_has_not_begun() -> None:
    assert Served().refused(frame(CONTINUATION, END_HEADERS, 1, block())) == PROTOCOL_ERROR
    sent = headers(1) + frame(CONTINUATION, END_HEADERS, 1, b"")
    assert Served().refused(sent) == PROTOCOL_ERROR


@pytest.mark.parametrize("piece", [b"", b"\0", bytes(1 << 14)])
def test_a_block_without_an_end_ends_the_connection(piece: bytes) -> None:
    served = Served()
    sent = frame(HEADERS, 0, 1, block()) + frame(CONTINUATION, 0, 1, piece) * MOST_PIECES
    assert served.refused(sent) == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("wrong", [b"\xff\xff\xff\xff\xff\xff", b"\x80", b"\xbe", b"\0\x05ab"])
def test_what_is_no_block_ends_the_connection(wrong: bytes) -> None:
    assert Served().refused(headers(1, 0, wrong)) == COMPRESSION_ERROR


def test_a_block_that_grows_beyond_measure_ends_the_connection() -> None:
    entry = Encoder().encode([(b"bomb", b"x" * 3900)], huffman=False)
    sent = headers(1, 0, block() + entry + b"\xbe" * 100)
    assert Served().refused(sent) == COMPRESSION_ERROR


def test_the_same_bytes_mean_what_the_table_says() -> None:
    """What a block said is remembered, but not beyond a change of the table."""
    served, encoder = Served(), Encoder()
    paths = [b"/a", b"/a", b"/b", b"/b", b"/a", b"/a"]
    numbers = range(1, 99, 2)
    seen = []
    for number, path in zip(numbers, paths, strict=False):
        fields = [*USUAL[:2], (b":path", path), USUAL[3], (b"x", path * 3)]
        stream = served.one(headers(number, END_STREAM, encoder.encode(fields)))
        seen.append((stream.head.path, stream.head.fields))
    assert seen == [(path, [(b"x", path * 3)]) for path in paths]
    # An index into the table is what was put there last.
    change = b"\x40\x01y" + b"\x01"
    one = served.one(headers(21, END_STREAM, block() + change + b"1"))
    again = served.one(headers(23, END_STREAM, block() + b"\xbe"))
    other = served.one(headers(25, END_STREAM, block() + change + b"2"))
    last = served.one(headers(27, END_STREAM, block() + b"\xbe"))
    found = [stream.head.fields[-1][1] for stream in (one, again, other, last)]
    assert found == [b"1", b"1", b"2", b"2"]


def test_a_block_that_changes_the_table_does_so_every_time() -> None:
    served = Served()
    change = block() + b"\x40\x01y\x011" + b"\x40\x01z\x011"
    for number in (1, 3):
        served.receive(headers(number, END_STREAM, change))
    # The last entry, and the one that the same block made before.
    stream = served.one(headers(5, END_STREAM, block() + b"\xbe\xbf\xc0\xc1"))
    assert [name for name, _ in stream.head.fields] == [b"z", b"y", b"z", b"y"]


def test_an_entry_that_takes_the_place_of_another_is_a_change() -> None:
    served = Served()
    # There is room for one.
    served.receive(headers(1, END_STREAM, b"\x3f\x09" + block()))
    found = []
    for number, value in ((3, b"1"), (7, b"2")):
        served.receive(headers(number, END_STREAM, block() + b"\x40\x01y\x01" + value))
        found.append(served.one(headers(number + 2, END_STREAM, block() + b"\xbe")).head.fields)
    assert found == [[(b"y", b"1")], [(b"y", b"2")]]


def test_a_block_on_a_stream_that_is_gone_changes_the_table_too() -> None:
    served = Served()
    served.connection.end(served.one(headers(1)), HEAD)
    served.receive(headers(1, END_STREAM, b"\x40\x01y\x011"))
    assert served.one(headers(3, END_STREAM, block() + b"\xbe")).head.fields == [(b"y", b"1")]
    served.connection.close()
    served.receive(headers(5, END_STREAM, block() + b"\x40\x01z\x011"))
    served.connection.closing = False
    assert served.one(headers(7, END_STREAM, block() + b"\xbe")).head.fields == [(b"z", b"1")]


def test_a_table_that_shrinks_is_another_table() -> None:
    served = Served()
    served.receive(headers(1, END_STREAM, block() + b"\x40\x01y\x01" + b"1"))
    assert served.one(headers(3, END_STREAM, block() + b"\xbe")).head.fields == [(b"y", b"1")]
    served.receive(headers(5, END_STREAM, b"\x20" + block()))
    assert served.refused(headers(7, END_STREAM, block() + b"\xbe")) == COMPRESSION_ERROR


NEW_SIZES = {"0": b"\x20", "30": b"\x3e", "31": b"\x3f\0", "4096": b"\x3f\xe1\x1f"}


@pytest.mark.parametrize("resize", NEW_SIZES.values(), ids=NEW_SIZES)
def test_a_block_resizes_the_table_twice_at_most(resize: bytes) -> None:
    """The smallest size in between and the last (RFC 7541, 4.2): else a few bytes cost much."""
    served = Served()
    for number in (1, 3, 5):
        stream = served.one(headers(number, 0, resize * (number // 2) + block()))
        assert stream.head.path == b"/p"
    trailers = field(b"end", b"0")
    assert served.one(headers(1, END_STREAM, resize * 2 + trailers)).ended
    assert served.refused(headers(3, END_STREAM, resize * 3 + trailers)) == COMPRESSION_ERROR
    assert Served().refused(headers(1, 0, resize * 3 + block())) == COMPRESSION_ERROR
    assert Served().refused(headers(1, 0, resize * 3)) == COMPRESSION_ERROR


@pytest.mark.parametrize("rest", [b"\x3f", b"\x3f\xff", b"\x20\x3f\xff\xff"])
def test_a_size_of_the_table_that_does_not_end_is_refused(rest: bytes) -> None:
    assert Served().refused(headers(1, 0, rest)) == COMPRESSION_ERROR


@pytest.mark.parametrize("number", [0, 2, 4])
def test_clients_begin_streams_with_odd_numbers(number: int) -> None:
    assert Served().refused(headers(number)) == PROTOCOL_ERROR


def test_numbers_of_streams_grow() -> None:
    served = Served()
    served.receive(headers(5))
    assert served.refused(headers(3)) == STREAM_CLOSED


def test_priority_is_read_over() -> None:
    served = Served()
    urgent = frame(HEADERS, END_HEADERS | PRIORITIZED | END_STREAM, 1, bytes(5) + block())
    assert served.one(urgent).head.path == b"/p"
    assert served.receive(frame(PRIORITY, 0, 9, bytes(5)) + frame(PRIORITY, 0, 1, bytes(5))) == []
    assert not served.connection.over
    short = frame(HEADERS, END_HEADERS | PRIORITIZED, 3, bytes(4))
    assert served.refused(short) == FRAME_SIZE_ERROR


def test_padding_is_taken_away_and_counts_for_the_window() -> None:
    served = Served()
    padded = frame(HEADERS, END_HEADERS | PADDED, 1, b"\x05" + block() + bytes(5))
    stream = served.one(padded + frame(DATA, PADDED | END_STREAM, 1, b"\x03abc" + bytes(3)))
    assert (stream.head.path, stream.pieces) == (b"/p", [b"abc"])
    assert (stream.room, stream.unread) == (STREAM_ROOM - 7, 4)


@pytest.mark.parametrize("kind", [DATA, HEADERS])
@pytest.mark.parametrize(
    ("payload", "code"), [(b"", FRAME_SIZE_ERROR), (b"\x01", PROTOCOL_ERROR), (b"\xff" * 9, 1)]
)
def test_there_is_no_more_padding_than_frame(kind: int, payload: bytes, code: int) -> None:
    served = Served()
    served.receive(headers(1))
    number = 1 if kind == DATA else 3
    assert served.refused(frame(kind, PADDED | END_HEADERS, number, payload)) == code


# Stream states (5.1)


CLOSED = {
    "data": (data(1, b"x"), STREAM_CLOSED),
    "headers": (headers(1, END_STREAM), STREAM_CLOSED),
    "window": (widen(1, 1), None),
    "reset": (frame(RST_STREAM, 0, 1, WORD), None),
    "priority": (frame(PRIORITY, 0, 1, bytes(5)), None),
}


@pytest.mark.parametrize("case", CLOSED)
def test_what_may_come_on_a_stream_that_was_answered(case: str) -> None:
    sent, code = CLOSED[case]
    served = Served()
    served.connection.answer(served.one(call(1)), HEAD, b"a", TRAILERS)
    if code is None:
        assert served.receive(sent) == []
        assert not served.connection.over
    else:
        assert served.refused(sent) == code


@pytest.mark.parametrize("case", CLOSED)
def test_what_may_come_on_a_stream_that_its_client_has_ended(case: str) -> None:
    sent, code = CLOSED[case]
    served = Served()
    stream = served.one(call(1))
    if code is None:
        served.receive(sent)
        assert not served.connection.over
        assert stream.gone == (case == "reset")
    else:
        assert served.reset(sent) == (1, code)
        assert stream.gone


@pytest.mark.parametrize("case", CLOSED)
def test_what_may_come_on_a_stream_that_its_client_has_reset(case: str) -> None:
    sent, code = CLOSED[case]
    served = Served()
    served.receive(headers(1) + frame(RST_STREAM, 0, 1, WORD))
    if code is None:
        served.receive(sent)
        assert not served.connection.over
    else:
        assert served.refused(sent) == code


@pytest.mark.parametrize(
    "sent",
    [
        data(1, b"x"),
        widen(1, 1),
        frame(RST_STREAM, 0, 1, WORD),
        widen(2, 1),
        data(0, b"x"),
        data(2, b"x"),
    ],
)
def test_what_may_not_come_on_a_stream_that_has_not_begun(sent: bytes) -> None:
    assert Served().refused(sent) == PROTOCOL_ERROR


def test_a_reset_tells_the_server_that_nobody_waits() -> None:
    served = Served()
    stream = served.one(headers(1) + data(1, b"x"))
    again = served.one(frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4, "big")))
    assert again is stream
    assert stream.gone
    assert served.connection.streams == {}


def test_so_many_streams_at_once_and_no_more() -> None:
    served = Served()
    for number in range(1, 2 * MOST_STREAMS, 2):
        served.receive(headers(number))
    over = 2 * MOST_STREAMS + 1
    assert served.reset(headers(over)) == (over, REFUSED_STREAM)
    assert served.receive(data(over, b"on its way")) == []
    served.connection.end(served.connection.streams[1], HEAD)
    served.said()
    assert served.one(headers(over + 2)).number == over + 2


# Sizes (4.2) and the frames of a connection (6)


WRONG_FRAMES = {
    "long": (frame(DATA, 0, 1, bytes((1 << 14) + 1)), FRAME_SIZE_ERROR),
    "settings-stream": (frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "settings-size": (frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "settings-ack": (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "settings-push": (settings(push=2), PROTOCOL_ERROR),
    "settings-window": (settings(window=MAX_WINDOW + 1), FLOW_CONTROL_ERROR),
    "settings-frame-small": (settings(frame=(1 << 14) - 1), PROTOCOL_ERROR),
    "settings-frame-large": (settings(frame=1 << 24), PROTOCOL_ERROR),
    "ping-size": (frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "ping-stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "goaway-stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "goaway-size": (frame(GOAWAY, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "window-size": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "window-nothing": (widen(0, 0), PROTOCOL_ERROR),
    "window-too-much": (widen(0, MAX_WINDOW), FLOW_CONTROL_ERROR),
    "reset-stream": (frame(RST_STREAM, 0, 0, WORD), PROTOCOL_ERROR),
    "reset-size": (frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "priority-stream": (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "priority-size": (frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "promise": (frame(PUSH_PROMISE, END_HEADERS, 1, WORD + block()), PROTOCOL_ERROR),
}


@pytest.mark.parametrize("case", WRONG_FRAMES)
def test_what_ends_a_connection(case: str) -> None:
    sent, code = WRONG_FRAMES[case]
    served = Served()
    stream = served.one(headers(1))
    assert served.refused(sent) == code
    assert stream.gone
    assert served.receive(call(3)) == []


def test_what_nobody_knows_is_read_over() -> None:
    served = Served()
    served.receive(frame(0x42, 0xFF, 7, b"new") + frame(SETTINGS, 0, 0, b"\x12\x34" + bytes(4)))
    assert served.one(call(1)).ended


def test_pings_and_settings_are_answered() -> None:
    served = Served()
    served.receive(frame(PING, 0, 0, b"abcdefgh") + settings(window=5) + frame(SETTINGS, ACK, 0))
    assert [(one.kind, one.flags, one.payload) for one in served.said()] == [
        (PING, ACK, b"abcdefgh"),
        (SETTINGS, ACK, b""),
    ]


# Flow control (5.2, 6.9)


def test_no_more_is_sent_than_a_stream_has_room_for() -> None:
    served = Served(PREFACE + settings(window=10))
    stream = served.one(call(1))
    served.connection.answer(stream, HEAD, bytes(range(25)), TRAILERS)
    assert body_of(served) == bytes(range(10))
    assert not stream.gone
    served.receive(widen(1, 5))
    assert body_of(served) == bytes(range(10, 15))
    served.receive(settings(window=13))
    assert body_of(served) == bytes(range(15, 18))
    # Room that is taken back has to be made up for.
    served.receive(settings(window=3) + widen(1, 10))
    assert body_of(served) == b""
    served.receive(widen(1, 7))
    said = served.said()
    assert [(one.kind, one.payload) for one in said] == [
        (DATA, bytes(range(18, 25))),
        (1, TRAILERS),
    ]
    assert stream.gone


def test_no_more_is_sent_than_the_connection_has_room_for() -> None:
    served = Served(PREFACE + settings(window=1 << 20))
    streams = [served.one(call(number)) for number in (1, 3)]
    for stream in streams:
        served.connection.answer(stream, HEAD, bytes(60_000), TRAILERS)
    assert len(body_of(served)) == (1 << 16) - 1
    served.receive(widen(0, 20_000))
    assert len(body_of(served)) == 20_000
    served.receive(widen(0, 1 << 20))
    assert len(body_of(served)) == 120_000 - 20_000 - (1 << 16) + 1
    assert all(stream.gone for stream in streams)


def test_streams_that_wait_take_turns() -> None:
    served = Served(PREFACE + settings(window=1 << 20))
    for number in (1, 3, 5):
        served.connection.answer(served.one(call(number)), HEAD, bytes(1 << 18), TRAILERS)
    served.said()
    for _ in range(4):
        served.receive(widen(0, 3 << 14))
        assert sorted(one.stream for one in served.said()) == [1, 3, 5]
    turns = []
    for _ in range(6):
        served.receive(widen(0, 1 << 14))
        turns += [one.stream for one in served.said()]
    assert sorted(turns[:3]) == [1, 3, 5]
    assert turns[:3] == turns[3:]


def test_frames_are_no_longer_than_the_client_takes() -> None:
    for largest, expected in ((1 << 14, 1 << 14), (20_000, 20_000), ((1 << 24) - 1, 1 << 16)):
        served = Served(PREFACE + settings(window=1 << 20, frame=largest) + widen(0, 1 << 20))
        served.connection.answer(served.one(call(1)), HEAD, bytes(100_000), TRAILERS)
        sizes = [len(one.payload) for one in served.said() if one.kind == DATA]
        assert (max(sizes), sum(sizes)) == (expected, 100_000)


def test_a_window_that_grows_too_large_ends_the_stream() -> None:
    served = Served()
    served.receive(headers(1))
    assert served.reset(widen(1, MAX_WINDOW)) == (1, FLOW_CONTROL_ERROR)
    served.receive(headers(3))
    assert served.reset(widen(3, 0)) == (3, PROTOCOL_ERROR)
    served.receive(headers(5) + widen(5, MAX_WINDOW - (1 << 16) + 1))
    assert served.refused(settings(window=1 << 17)) == FLOW_CONTROL_ERROR


def test_a_client_may_send_what_there_is_room_for_and_no_more() -> None:
    served = Served()
    stream = served.one(headers(1))
    piece = data(1, bytes(1 << 14))
    served.receive(piece * (STREAM_ROOM >> 14))
    assert not stream.gone
    assert served.reset(data(1, b"x")) == (1, FLOW_CONTROL_ERROR)
    assert stream.gone


def test_room_is_given_back_as_bytes_are_taken() -> None:
    served = Served()
    stream = served.one(headers(1))
    for _ in range(200):
        served.receive(data(1, bytes(1 << 14)))
        stream.pieces.clear()
        served.connection.taken(stream, 1 << 14)
    assert not stream.gone
    given = [int.from_bytes(one.payload) for one in served.said() if one.stream == 1]
    assert sum(given) >= (200 << 14) - STREAM_ROOM


def test_room_of_the_connection_comes_back_whoever_is_slow() -> None:
    served = Served()
    # Nobody takes any of it, and streams are many.
    for number in range(1, 2 * (3 * CONNECTION_ROOM // STREAM_ROOM), 2):
        served.receive(headers(number) + data(number, bytes(1 << 14)) * (STREAM_ROOM >> 14))
    assert not served.connection.over
    given = [int.from_bytes(one.payload) for one in served.said() if not one.stream and one.payload]
    assert sum(given) >= 2 * CONNECTION_ROOM


def test_who_sends_more_than_the_connection_has_room_for_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It comes back so soon that nobody can.
    monkeypatch.setattr(http2_connection, "CONNECTION_ROOM", 1 << 30)
    served = Served()
    served.connection._room = 100
    served.receive(headers(1))
    assert served.refused(data(1, bytes(101))) == FLOW_CONTROL_ERROR


def test_nothing_of_a_body_is_sent_while_the_socket_is_full() -> None:
    served = Served()
    stream = served.one(call(1))
    served.connection.writable = False
    served.connection.answer(stream, HEAD, b"answer", TRAILERS)
    assert body_of(served) == b""
    assert served.connection.waits
    served.connection.writable = True
    served.connection.go_on()
    assert body_of(served) == b"answer"
    assert stream.gone


def test_a_client_that_wants_a_small_table_is_told_that_there_is_none() -> None:
    served = Served(PREFACE + settings(table=0))
    for number in (1, 3):
        served.connection.answer(served.one(call(number)), HEAD, b"a", TRAILERS)
    blocks = [one.payload for one in served.said() if one.kind == HEADERS]
    assert blocks == [NO_TABLE + HEAD, TRAILERS, HEAD, TRAILERS]


# Floods


FLOODS = {
    "ping": frame(PING, 0, 0, bytes(8)),
    "settings": frame(SETTINGS, 0, 0),
    "many-settings": settings(window=1, frame=1 << 14, list=1) * 3,
    "window": widen(0, 1),
    "window-stream": widen(1, 1),
    "empty-data": data(1, b""),
    "little-data": data(1, b"x"),
    "priority": frame(PRIORITY, 0, 1, bytes(5)),
    "unknown": frame(0x42, 0, 0, b""),
    "reset-late": frame(RST_STREAM, 0, 3, WORD),
}


@pytest.mark.parametrize("case", FLOODS)
def test_much_of_what_leads_to_nothing_ends_the_connection(case: str) -> None:
    served = Served()
    served.receive(headers(1) + headers(3) + frame(RST_STREAM, 0, 3, WORD))
    few = FLOODS[case] * (MOST // 20)
    served.receive(few)
    assert not served.connection.over
    assert served.refused(FLOODS[case] * (2 * MOST)) == ENHANCE_YOUR_CALM


def flood_of_resets(number: int) -> bytes:
    return headers(number) + frame(RST_STREAM, 0, number, WORD)


def flood_of_nonsense(number: int) -> bytes:
    return headers(number, 0, block(fields=[]))


@pytest.mark.parametrize("flood", [flood_of_resets, flood_of_nonsense])
def test_streams_that_lead_to_nothing_end_the_connection(flood: object) -> None:
    assert callable(flood)
    served = Served()
    sent = 0
    for number in range(1, TIMES, 2):
        served.receive(flood(number))
        sent += 1
        if served.connection.over:
            break
    assert 1000 < sent < 3000
    assert int.from_bytes(served.said()[-1].payload[4:8]) == ENHANCE_YOUR_CALM


LONG = [(b"a", b"b")]
"""Fields of a head, of which there may be many."""


def test_heads_that_are_too_long_end_the_connection() -> None:
    served = Served()
    served_heads = 0
    for number in range(1, TIMES, 2):
        served.receive(headers(number, END_STREAM, block(*LONG * 1500)))
        if served.connection.over:
            break
        served_heads += 1
    assert served_heads == 1, "or they would keep others waiting"
    assert served.said()[-1].payload[7] == ENHANCE_YOUR_CALM


def test_few_bytes_that_stand_for_many_end_the_connection() -> None:
    served = Served()
    entry = b"\x40" + field(b"bomb", b"x" * 4000)[1:]
    served.receive(headers(1, END_STREAM, block() + entry))
    bombs = 0
    for number in range(3, TIMES, 2):
        for stream in served.receive(headers(number, END_STREAM, block() + b"\xbe" * 12)):
            if not served.connection.over:
                served.connection.answer(stream, HEAD, b"", TRAILERS)
        if served.connection.over:
            break
        bombs += 1
    assert 15 < bombs < 30
    assert served.said()[-1].payload[7] == ENHANCE_YOUR_CALM


def test_a_large_head_of_a_browsers_costs_nothing() -> None:
    served = Served()
    cookie = (b"cookie", b"c" * (FREE_LIST_BYTES - 400))
    for number in range(1, 200, 2):
        served.one(headers(number, END_STREAM, block(cookie, (b"n", b"%d" % number))))
    assert served.connection.patience.left == MOST - 1


def test_a_head_that_may_be_served_costs_nothing_however_often_it_comes() -> None:
    served = Served()
    for number in range(1, 200, 2):
        more = LONG * (FREE_FIELDS - len(USUAL) - 1)
        served.receive(headers(number, END_STREAM, block(*more, (b"n", b"%d" % number))))
    assert served.connection.patience.left == MOST - 1, "the greeting's settings"


def test_of_long_heads_some_are_read_at_once_and_the_others_in_order_later() -> None:
    served = Served()
    fields = LONG * (FIELDS_AT_ONCE // 4 - len(USUAL))
    heads = [
        headers(number, END_STREAM, block(*fields[:-1], (b"n", b"%d" % number)))
        for number in range(1, 41, 2)
    ]
    receive = served.connection.receive
    found = [receive(b"".join(heads[:-1])), receive(heads[-1][:5]), receive(heads[-1][5:])]
    while served.connection.behind:
        found.append(receive(b""))
    assert [len(streams) for streams in found] == [4] * 5
    assert [stream.number for streams in found for stream in streams] == [*range(1, 41, 2)]
    assert not served.connection.unfinished


def test_heads_that_are_known_are_read_all_at_once() -> None:
    served = Served()
    known = block(*LONG * 200)
    served.receive(headers(1, END_STREAM, known))
    many = b"".join(headers(number, END_STREAM, known) for number in range(3, 203, 2))
    assert len(served.connection.receive(many)) == 100
    assert not served.connection.behind


def test_of_pieces_of_long_heads_some_are_read_at_once() -> None:
    served = Served()
    cut = b"".join(
        frame(HEADERS, END_STREAM, number, block(*LONG * 200))
        + frame(CONTINUATION, END_HEADERS, number, field(b"n", b"%d" % number))
        for number in range(1, 41, 2)
    )
    assert len(served.connection.receive(cut)) == 5
    assert served.connection.behind


def test_nothing_is_read_behind_the_end() -> None:
    served = Served()
    heads = (
        headers(number, END_STREAM, block(*LONG * 200, (b"n", b"%d" % number)))
        for number in range(1, 41, 2)
    )
    served.connection.receive(b"".join(heads))
    assert served.connection.behind
    served.connection.give_up(NO_ERROR, "")
    assert served.connection.receive(b"") == []
    assert not served.connection.behind


class Counted(list[bytes | memoryview]):
    """Pieces of an answer; counts how often somebody asks whether there are any."""

    looks = 0

    def __bool__(self) -> bool:
        self.looks += 1
        return bool(len(self))


def test_streams_without_room_are_not_looked_at_for_every_window() -> None:
    served = Served(PREFACE + settings(window=0))
    stream = served.one(call(1))
    served.connection.begin(stream, HEAD)
    served.connection.send(stream, b"answer")
    queue = stream.queue = Counted(stream.queue)
    served.receive(widen(0, 1))
    few = queue.looks
    served.receive(widen(0, 1) * 100)
    assert queue.looks == few
    served.receive(widen(1, 3))
    assert served.said()[-1].payload == b"ans"
    served.receive(settings(window=3))
    assert served.said()[-2].payload == b"wer"


def test_windows_of_many_streams_cost_more() -> None:
    """Else few bytes would have the server look at all streams again and again."""

    def costs(streams: int) -> int:
        served = Served()
        served.receive(b"".join(headers(2 * number + 1) for number in range(streams)))
        before = served.connection.patience.left
        served.receive(settings(window=1) + settings(window=1) + settings(window=2))
        return before - served.connection.patience.left

    assert costs(1024) == costs(1) + 2 * 1024 // STREAMS


def test_of_a_setting_that_is_said_twice_the_last_one_holds() -> None:
    served = Served()
    stream = served.one(call(1))
    first, last = settings(window=0)[9:], settings(window=3)[9:]
    served.receive(frame(SETTINGS, 0, 0, first * 100 + last))
    served.connection.answer(stream, HEAD, b"answer", TRAILERS)
    assert served.said()[-1].payload == b"ans"


def test_who_is_served_may_send_what_serving_takes() -> None:
    """A window and a ping with each call, and every third is taken back."""
    served = Served()
    for turn, number in enumerate(range(1, TIMES, 2)):
        extra = widen(0, 6) + frame(PING, 0, 0, bytes(8))
        (stream,) = served.receive(call(number) + extra)
        if turn % 3:
            served.connection.answer(stream, HEAD, b"answer", TRAILERS)
        else:
            served.receive(frame(RST_STREAM, 0, number, WORD))
    assert not served.connection.over


def test_an_answer_that_is_taken_by_the_byte_does_not_pay_for_it() -> None:
    served = Served(PREFACE + settings(window=0))
    served.connection.answer(served.one(call(1)), HEAD, bytes(1 << 20), TRAILERS)
    for _ in range(20):
        served.receive(widen(1, 1) * (MOST // 10))
        if served.connection.over:
            break
    assert served.said()[-1].payload[7] == ENHANCE_YOUR_CALM


def test_one_answer_does_not_pay_for_a_flood() -> None:
    served = Served()
    ping = frame(PING, 0, 0, bytes(8))
    served.receive(ping * (MOST - 10))
    served.connection.answer(served.one(call(1)), HEAD, b"answer", TRAILERS)
    served.said()
    assert served.refused(ping * 100) == ENHANCE_YOUR_CALM


def test_patience_comes_back_with_time() -> None:
    served = Served()
    for _ in range(100):
        served.receive(frame(PING, 0, 0, bytes(8)) * 900)
        served.connection.tick()
        served.said()
    assert not served.connection.over


# Leaving


def test_a_server_that_leaves_serves_what_was_sent_before_its_client_knew() -> None:
    served = Served()
    served.receive(call(1))
    served.connection.leave()
    first, ping = served.said()
    assert (first.kind, int.from_bytes(first.payload[:4])) == (GOAWAY, MAX_WINDOW)
    assert served.one(call(3)).number == 3
    served.receive(frame(PING, ACK, 0, ping.payload))
    (last,) = served.said()
    assert (last.kind, int.from_bytes(last.payload[:4])) == (GOAWAY, 3)
    assert int.from_bytes(last.payload[4:]) == NO_ERROR
    assert served.connection.closing
    # The client tries these elsewhere.
    assert served.receive(call(5) + call(7)) == []
    assert not served.connection.over
    for stream in list(served.connection.streams.values()):
        served.connection.answer(stream, HEAD, b"a", TRAILERS)
    assert [one.stream for one in served.said() if one.kind == DATA] == [1, 3]


def test_another_ping_does_not_close() -> None:
    served = Served()
    served.connection.leave()
    served.receive(frame(PING, ACK, 0, bytes(8)))
    assert not served.connection.closing


def test_a_connection_that_is_given_up_gives_up_its_streams() -> None:
    served = Served()
    served.receive(call(1) + headers(3))
    assert [one.number for one in served.connection.give_up(NO_ERROR, "too long")] == [1, 3]
    assert served.said()[-1].payload == (3).to_bytes(4, "big") + bytes(4) + b"too long"
    assert served.connection.give_up(NO_ERROR, "") == []
