"""Windows over HTTP/2 (RFC 9113, 5.2 and 6.9): who may send how much, and whose turn it is."""

import pytest
from http2_harness import Served, call, data, headers, settings, widen

from ringbatch.frontend.http2 import connection as http2_connection
from ringbatch.frontend.http2.connection import CONNECTION_ROOM, STREAM_ROOM
from ringbatch.frontend.http2.frames import (
    DATA,
    FLOW_CONTROL_ERROR,
    HEADERS,
    MAX_WINDOW,
    PREFACE,
    PROTOCOL_ERROR,
)
from ringbatch.frontend.http2.header_text import NO_TABLE, STATUS_200, field

HEAD = STATUS_200 + field(b"content-type", b"t")

TRAILERS = field(b"end", b"0")


def body_of(served: Served) -> bytes:
    return b"".join(one.payload for one in served.said() if one.kind == DATA)


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
