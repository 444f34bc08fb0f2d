"""Flow control windows of HTTP/2 (RFC 9113, 5.2 and 6.9), and turns of its streams."""

import pytest
from http2_harness import Served, call, data, headers, settings, widen

from ringbatch.frontend.http2 import bodies as http2_bodies
from ringbatch.frontend.http2.bodies import CONNECTION_ROOM, STREAM_ROOM
from ringbatch.frontend.http2.flood_budget import SENT
from ringbatch.frontend.http2.frames import (
    DATA,
    FLOW_CONTROL_ERROR,
    HEADERS,
    MAX_WINDOW,
    PREFACE,
    PROTOCOL_ERROR,
    WINDOW_UPDATE,
)
from ringbatch.frontend.http2.header_text import NO_TABLE, STATUS_200, field
from ringbatch.frontend.http2.outgoing import ANSWERS

HEAD = STATUS_200 + field(b"content-type", b"t")

TRAILERS = field(b"end", b"0")


def body_of(served: Served) -> bytes:
    return b"".join(one.payload for one in served.sent_frames() if one.kind == DATA)


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
    sent_frames = served.sent_frames()
    assert [(one.kind, one.payload) for one in sent_frames] == [
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


def test_pieces_stay_in_order_and_use_both_windows() -> None:
    served = Served(PREFACE + settings(window=12))
    core, stream = served.connection, served.one(call(1))
    core.begin(stream, HEAD)
    core.send(stream, bytes(range(8)))
    assert body_of(served) == bytes(range(8))
    assert (stream.sent_bytes, stream.window) == (8, 4)
    core.send(stream, bytes(range(8, 16)))
    # Shorter than the window is once more, and yet behind the one that waits.
    served.connection.writable = False
    served.receive(widen(1, 2))
    core.send(stream, bytes((16,)))
    served.connection.writable = True
    core.send(stream, bytes((17,)))
    served.connection.go_on()
    served.receive(widen(1, 100))
    assert body_of(served) == bytes(range(8, 18))
    assert (stream.sent_bytes, stream.queue) == (18, [])


def test_pieces_take_no_more_than_the_connection_has_room_for() -> None:
    served = Served(PREFACE + settings(window=1 << 20))
    core, streams = served.connection, [served.one(call(number)) for number in (1, 3)]
    for stream in streams:
        core.begin(stream, HEAD)
    pieces = [bytes((number,)) * (1 << 13) for number in range(10)]
    for number, piece in enumerate(pieces):
        core.send(streams[number % 2], piece)
    assert len(body_of(served)) == (1 << 16) - 1
    served.receive(widen(0, 1 << 20))
    assert len(body_of(served)) == sum(map(len, pieces)) - (1 << 16) + 1


def test_each_piece_that_is_sent_makes_up_for_frames() -> None:
    served = Served(PREFACE + settings(window=1 << 20))
    core, stream = served.connection, served.one(call(1))
    core.begin(stream, HEAD)
    core.patience.spend(100)
    before = core.patience.left
    core.send(stream, b"x")
    assert core.patience.left == before + SENT


def test_streams_that_wait_take_turns() -> None:
    served = Served(PREFACE + settings(window=1 << 20))
    for number in (1, 3, 5):
        served.connection.answer(served.one(call(number)), HEAD, bytes(1 << 18), TRAILERS)
    served.sent_frames()
    for _ in range(4):
        served.receive(widen(0, 3 << 14))
        assert sorted(one.stream for one in served.sent_frames()) == [1, 3, 5]
    turns = []
    for _ in range(6):
        served.receive(widen(0, 1 << 14))
        turns += [one.stream for one in served.sent_frames()]
    assert sorted(turns[:3]) == [1, 3, 5]
    assert turns[:3] == turns[3:]


def test_frames_are_no_longer_than_the_client_takes() -> None:
    for largest, expected in ((1 << 14, 1 << 14), (20_000, 20_000), ((1 << 24) - 1, 1 << 16)):
        served = Served(PREFACE + settings(window=1 << 20, frame=largest) + widen(0, 1 << 20))
        served.connection.answer(served.one(call(1)), HEAD, bytes(100_000), TRAILERS)
        sizes = [len(one.payload) for one in served.sent_frames() if one.kind == DATA]
        assert (max(sizes), sum(sizes)) == (expected, 100_000)


def test_a_window_that_grows_too_large_ends_the_stream() -> None:
    served = Served()
    served.receive(headers(1))
    assert served.reset(widen(1, MAX_WINDOW)) == (1, FLOW_CONTROL_ERROR)
    served.receive(headers(3))
    assert served.reset(widen(3, 0)) == (3, PROTOCOL_ERROR)
    served.receive(headers(5) + widen(5, MAX_WINDOW - (1 << 16) + 1))
    assert served.refused(settings(window=1 << 17)) == FLOW_CONTROL_ERROR


def test_a_client_may_send_as_much_as_there_is_room_for_and_no_more() -> None:
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
    given = [int.from_bytes(one.payload) for one in served.sent_frames() if one.stream == 1]
    assert sum(given) >= (200 << 14) - STREAM_ROOM


def test_room_of_the_connection_comes_back_beside_slow_streams() -> None:
    served = Served()
    # There are many streams, and no service takes their bodies.
    for number in range(1, 2 * (3 * CONNECTION_ROOM // STREAM_ROOM), 2):
        served.receive(headers(number) + data(number, bytes(1 << 14)) * (STREAM_ROOM >> 14))
    assert not served.connection.over
    given = [
        int.from_bytes(one.payload)
        for one in served.sent_frames()
        if not one.stream and one.payload
    ]
    assert sum(given) >= 2 * CONNECTION_ROOM


def test_waiting_bytes_count_until_the_last_of_them_are_sent() -> None:
    served = Served(PREFACE + settings(window=10))
    core = served.connection
    streams = [served.one(call(number)) for number in (1, 3, 5)]
    core.answer(streams[0], HEAD, bytes(10), TRAILERS)
    assert (core.waiting_bytes, core.reliefs) == (0, 0)
    core.answer(streams[1], HEAD, bytes(30), TRAILERS)
    core.begin(streams[2], HEAD)
    core.send(streams[2], bytes(30))
    core.send(streams[2], bytes(5))
    assert core.waiting_bytes == 65
    served.receive(widen(3, 19) + widen(5, 21))
    assert (core.waiting_bytes, core.reliefs) == (65, 0)
    served.receive(widen(3, 1))
    assert (core.waiting_bytes, core.reliefs) == (35, 1)
    core.reset(streams[2])
    assert (core.waiting_bytes, core.reliefs) == (0, 2)


def test_several_of_the_largest_answers_may_wait() -> None:
    served = Served(PREFACE + settings(window=0))
    core = served.connection
    large = bytes(core.most_waiting_bytes // 2)
    for number in range(1, 2 * ANSWERS + 1, 2):
        core.answer(served.one(call(number)), HEAD, large, TRAILERS)
        assert not core.full
    stream = served.one(call(99))
    core.answer(stream, HEAD, b"one more", TRAILERS)
    assert core.full
    served.receive(widen(99, 8))
    assert (stream.gone, core.full) == (True, False)


def test_a_client_that_must_first_take_answers_gets_no_more_room_to_send() -> None:
    served = Served(PREFACE + settings(window=0))
    core = served.connection
    core.most_waiting_bytes = 1
    for number in range(1, 2 * ANSWERS + 3, 2):
        core.answer(served.one(call(number)), HEAD, b"answer", TRAILERS)
    assert core.full
    served.sent_frames()
    sent = 0
    for number in range(101, 101 + 2 * (CONNECTION_ROOM // STREAM_ROOM), 2):
        piece = data(number, bytes(1 << 14))
        served.receive(headers(number) + piece * (STREAM_ROOM >> 14))
        sent += STREAM_ROOM
    assert sent == CONNECTION_ROOM
    # The answers of before took some.
    assert core.over
    assert served.sent_frames()[-1].payload[7] == FLOW_CONTROL_ERROR


def test_room_comes_back_as_answers_are_taken() -> None:
    served = Served(PREFACE + settings(window=0))
    core = served.connection
    core.most_waiting_bytes = 1
    for number in range(1, 2 * ANSWERS + 3, 2):
        core.answer(served.one(call(number)), HEAD, b"answer", TRAILERS)
    for number in (101, 103, 105, 107, 109, 111, 113, 115):
        served.receive(headers(number) + data(number, bytes(1 << 14)) * (STREAM_ROOM >> 14))
    assert not [one for one in served.sent_frames() if one.kind == WINDOW_UPDATE]
    served.receive(widen(1, 6))
    (given,) = [one for one in served.sent_frames() if one.kind == WINDOW_UPDATE]
    assert (given.stream, int.from_bytes(given.payload) >= CONNECTION_ROOM // 2) == (0, True)


def test_a_client_that_exceeds_the_connections_room_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The window comes back so soon that no client can overrun it.
    monkeypatch.setattr(http2_bodies, "CONNECTION_ROOM", 1 << 30)
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


def test_a_client_that_wants_a_small_table_learns_that_there_is_none() -> None:
    served = Served(PREFACE + settings(table=0))
    for number in (1, 3):
        served.connection.answer(served.one(call(number)), HEAD, b"a", TRAILERS)
    blocks = [one.payload for one in served.sent_frames() if one.kind == HEADERS]
    assert blocks == [NO_TABLE + HEAD, TRAILERS, HEAD, TRAILERS]


class Counted(list[bytes | memoryview]):
    """Pieces of an answer that count the looks at them."""

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
    assert served.sent_frames()[-1].payload == b"ans"
    served.receive(settings(window=3))
    assert served.sent_frames()[-2].payload == b"wer"
