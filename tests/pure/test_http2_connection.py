"""HTTP/2 connection: a client's frames and their effects, by RFC 9113."""

import random
from collections.abc import Callable

import pytest
from http2_harness import (
    GREETING,
    Served,
    block,
    call,
    data,
    frame,
    headers,
    settings,
    widen,
)

from ringbatch.frontend.http2.bodies import STREAM_ROOM
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.flood_budget import STREAM
from ringbatch.frontend.http2.frames import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INTERNAL_ERROR,
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
from ringbatch.frontend.http2.header_reader import HeaderReader
from ringbatch.frontend.http2.header_rules import Http2RequestHead
from ringbatch.frontend.http2.header_text import STATUS_200, field
from ringbatch.frontend.http2.outgoing import MOST_STREAMS
from ringbatch.frontend.http2.stream import Stream

HEAD = STATUS_200 + field(b"content-type", b"t")

TRAILERS = field(b"end", b"0")

WORD = (1).to_bytes(4, "big")


def test_a_greeting_is_answered_with_settings_and_a_window() -> None:
    sent_frames = Served().opening
    assert [(one.kind, one.flags) for one in sent_frames] == [
        (SETTINGS, 0),
        (WINDOW_UPDATE, 0),
        (SETTINGS, ACK),
    ]


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"X", b"PRI * HTTP/2.0\r\n\r\nSX"])
def test_bytes_that_are_not_http2_end_the_connection(sent: bytes) -> None:
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
        assert served.sent_frames()[-1].payload == b"12345678"


def test_a_request_and_its_answer() -> None:
    served = Served()
    stream = served.one(call(1))
    assert (stream.number, stream.pieces, stream.ended) == (1, [b"body"], True)
    assert (stream.head.method, stream.head.path) == (b"POST", b"/p")
    served.connection.answer(stream, HEAD, b"answer", TRAILERS)
    sent_frames = [(one.kind, one.flags, one.stream, one.payload) for one in served.sent_frames()]
    assert sent_frames == [
        (HEADERS, END_HEADERS, 1, HEAD),
        (DATA, 0, 1, b"answer"),
        (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
    ]
    assert (stream.gone, served.connection.streams) == (True, {})


def answered(core: Connection[Http2RequestHead], stream: Stream[Http2RequestHead]) -> None:
    core.answer(stream, HEAD, b"answer", TRAILERS)


def cancelled(core: Connection[Http2RequestHead], stream: Stream[Http2RequestHead]) -> None:
    core.receive(frame(RST_STREAM, 0, stream.number, CANCEL.to_bytes(4, "big")))


def waiting(core: Connection[Http2RequestHead], stream: Stream[Http2RequestHead]) -> None:
    core.receive(settings(window=0))
    answered(core, stream)


SENT: dict[str, Callable[[Connection[Http2RequestHead], Stream[Http2RequestHead]], None]] = {
    "answer": answered,
    "begin": lambda core, stream: core.begin(stream, HEAD),
    "inform": lambda core, stream: core.inform(stream, HEAD),
    "send": lambda core, stream: core.send(stream, b"more"),
    "end": lambda core, stream: core.end(stream, TRAILERS),
}


@pytest.mark.parametrize("end", [answered, cancelled, waiting])
@pytest.mark.parametrize("sent", SENT)
def test_nothing_of_an_answer_is_sent_once_it_has_ended(
    end: Callable[[Connection[Http2RequestHead], Stream[Http2RequestHead]], None], sent: str
) -> None:
    served = Served()
    stream = served.one(call(1))
    core = served.connection
    end(core, stream)
    served.sent_frames()
    before = core.waiting_bytes, list(stream.queue), stream.gone
    SENT[sent](core, stream)
    assert served.sent_frames() == []
    assert (core.waiting_bytes, list(stream.queue), stream.gone) == before


@pytest.mark.parametrize(("end", "resets"), [(answered, 0), (cancelled, 0), (waiting, 1)])
def test_a_stream_is_reset_until_it_is_gone(
    end: Callable[[Connection[Http2RequestHead], Stream[Http2RequestHead]], None], resets: int
) -> None:
    served = Served()
    stream = served.one(call(1))
    end(served.connection, stream)
    served.sent_frames()
    served.connection.reset(stream)
    assert [one.kind for one in served.sent_frames()] == resets * [RST_STREAM]


def test_a_failure_of_the_server_s_while_it_reads_ends_the_connection_in_words() -> None:
    def read(_request: Http2RequestHead) -> Http2RequestHead:
        raise ZeroDivisionError

    served = Served()
    first = served.one(call(1))
    served.connection.headers = HeaderReader(read, served.connection.patience)
    touched = served.receive(frame(RST_STREAM, 0, 1, WORD) + call(3) + call(5))
    assert [stream.number for stream in touched] == [1]
    assert first.gone
    assert served.connection.over
    (goaway,) = served.sent_frames()
    assert (goaway.kind, goaway.payload[4:8]) == (
        GOAWAY,
        INTERNAL_ERROR.to_bytes(4, "big"),
    )
    assert b"ZeroDivision" not in goaway.payload


def test_no_words_of_the_library_s_reach_a_client() -> None:
    served = Served()
    served.receive(headers(1, data=b"\xff\xff\xff\xff\xff\xff\xff"))
    (goaway,) = [one for one in served.sent_frames() if one.kind == GOAWAY]
    assert goaway.payload[8:] == b"a number in a header block is too long"


def test_an_answer_before_the_end_of_the_body_tells_the_client_to_stop() -> None:
    served = Served()
    stream = served.one(headers(1) + data(1, b"a"))
    served.connection.end(stream, HEAD)
    assert [(one.kind, one.stream) for one in served.sent_frames()] == [
        (HEADERS, 1),
        (RST_STREAM, 1),
    ]
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


CLOSED = {
    "data": (data(1, b"x"), STREAM_CLOSED),
    "headers": (headers(1, END_STREAM), STREAM_CLOSED),
    "window": (widen(1, 1), None),
    "reset": (frame(RST_STREAM, 0, 1, WORD), None),
    "priority": (frame(PRIORITY, 0, 1, bytes(5)), None),
}


@pytest.mark.parametrize("case", CLOSED)
def test_frames_on_an_answered_stream(case: str) -> None:
    sent, code = CLOSED[case]
    served = Served()
    served.connection.answer(served.one(call(1)), HEAD, b"a", TRAILERS)
    if code is None:
        assert served.receive(sent) == []
        assert not served.connection.over
    else:
        assert served.refused(sent) == code


@pytest.mark.parametrize("case", CLOSED)
def test_frames_on_a_stream_that_its_client_has_ended(case: str) -> None:
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
def test_frames_on_a_stream_that_its_client_has_reset(case: str) -> None:
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
def test_a_frame_on_a_stream_that_has_not_begun_is_an_error(sent: bytes) -> None:
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
    served.sent_frames()
    assert served.one(headers(over + 2)).number == over + 2


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
def test_a_wrong_frame_ends_a_connection(case: str) -> None:
    sent, code = WRONG_FRAMES[case]
    served = Served()
    stream = served.one(headers(1))
    assert served.refused(sent) == code
    assert stream.gone
    assert served.receive(call(3)) == []


def test_unknown_frames_and_settings_are_ignored() -> None:
    served = Served()
    served.receive(frame(0x42, 0xFF, 7, b"new") + frame(SETTINGS, 0, 0, b"\x12\x34" + bytes(4)))
    assert served.one(call(1)).ended


def test_pings_and_settings_are_answered() -> None:
    served = Served()
    served.receive(frame(PING, 0, 0, b"abcdefgh") + settings(window=5) + frame(SETTINGS, ACK, 0))
    assert [(one.kind, one.flags, one.payload) for one in served.sent_frames()] == [
        (PING, ACK, b"abcdefgh"),
        (SETTINGS, ACK, b""),
    ]


def test_a_leaving_server_serves_requests_sent_before_its_client_knew() -> None:
    served = Served()
    served.receive(call(1))
    served.connection.leave()
    first, ping = served.sent_frames()
    assert (first.kind, int.from_bytes(first.payload[:4])) == (GOAWAY, MAX_WINDOW)
    assert served.one(call(3)).number == 3
    served.receive(frame(PING, ACK, 0, ping.payload))
    (last,) = served.sent_frames()
    assert (last.kind, int.from_bytes(last.payload[:4])) == (GOAWAY, 3)
    assert int.from_bytes(last.payload[4:]) == NO_ERROR
    assert served.connection.closing
    # The client tries these elsewhere.
    assert served.receive(call(5) + call(7)) == []
    assert not served.connection.over
    for stream in list(served.connection.streams.values()):
        served.connection.answer(stream, HEAD, b"a", TRAILERS)
    assert [one.stream for one in served.sent_frames() if one.kind == DATA] == [1, 3]


LATE_FRAMES = {
    "data": data(5, b"body"),
    "end": data(5, b"", END_STREAM),
    "trailers": headers(5, END_STREAM, TRAILERS),
    "reset": frame(RST_STREAM, 0, 5, WORD),
    "window": widen(5, 1),
    "no-window": widen(5, 0),
    "priority": frame(PRIORITY, 0, 5, bytes(5)),
}


@pytest.mark.parametrize("case", LATE_FRAMES)
def test_frames_on_streams_behind_the_last_are_ignored(case: str) -> None:
    """The client had sent it before it knew (6.8)."""
    served = Served()
    stream = served.one(call(1))
    served.connection.close()
    served.sent_frames()
    left = served.connection.patience.left
    assert served.receive(headers(5) + LATE_FRAMES[case] * 2 + LATE_FRAMES["reset"]) == []
    assert served.connection.patience.left <= left - STREAM - 3
    served.connection.answer(stream, HEAD, b"a", TRAILERS)
    assert [one.kind for one in served.sent_frames()] == [HEADERS, DATA, HEADERS]
    # A client has none of these.
    assert served.refused(widen(6, 1)) == PROTOCOL_ERROR


def test_another_ping_does_not_close() -> None:
    served = Served()
    served.connection.leave()
    served.receive(frame(PING, ACK, 0, bytes(8)))
    assert not served.connection.closing


def test_a_connection_that_is_given_up_gives_up_its_streams() -> None:
    served = Served()
    served.receive(call(1) + headers(3))
    assert [one.number for one in served.connection.give_up(NO_ERROR, "too long")] == [1, 3]
    assert served.sent_frames()[-1].payload == (3).to_bytes(4, "big") + bytes(4) + b"too long"
    assert served.connection.give_up(NO_ERROR, "") == []
