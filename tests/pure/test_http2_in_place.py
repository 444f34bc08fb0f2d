"""Bytes that are read where they lie, and bodies that land in a sink: the same is understood as of
bytes that are handed over, however they are cut."""

import random

import pytest
from http2_harness import GREETING, Frame, Served, data, frame, headers
from tiers import exhaustive

from ringbatch.frontend.http2.bodies import CONNECTION_ROOM, STREAM_ROOM
from ringbatch.frontend.http2.frames import (
    CANCEL,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    PADDED,
    PING,
    PROTOCOL_ERROR,
    RST_STREAM,
)
from ringbatch.frontend.http2.header_rules import Http2RequestHead
from ringbatch.frontend.http2.stream import Stream

SINK_BYTES = 1 << 20
PIECE = bytes(range(256)) * 64


class Taker:
    """Service of streams that gives every other stream a sink with the first bytes of its body.

    Args:
        in_place: whether bytes are read where they lie.
    """

    def __init__(self, *, in_place: bool) -> None:
        self.served = Served(GREETING)
        self.in_place = in_place
        self.bodies: dict[int, bytearray] = {}
        self.streams: dict[int, Stream[Http2RequestHead]] = {}
        self.sent_frames: list[Frame] = []

    def receive(self, given: bytes) -> None:
        core = self.served.connection
        if not self.in_place:
            self._look(self.served.receive(given))
        else:
            memory = bytearray(given)
            at = 0
            while at < len(memory):
                size, streams = core.receive_in_place(memoryview(memory)[at:])
                assert size > 0, "it goes on"
                at += size
                self._look(streams)
            memory[:] = bytes(len(memory))
        self.sent_frames += self.served.sent_frames()

    def _look(self, streams: list[Stream[Http2RequestHead]]) -> None:
        for stream in streams:
            self.streams[stream.number] = stream
            if stream.pieces and stream.sink is None:
                body = self.bodies.setdefault(stream.number, bytearray())
                body += b"".join(stream.pieces)
                stream.pieces.clear()
                if stream.number % 4 == 1:
                    stream.sink = memoryview(bytearray(SINK_BYTES))

    def found(self) -> object:
        """Return everything that the connection has received and sent."""
        core = self.served.connection
        states = {
            number: (
                self.bodies.get(number, b"")
                + bytes((one.sink or b"")[: one.sunk_bytes])
                + b"".join(one.pieces),
                one.ended,
                one.gone,
                one.received_bytes,
                one.room,
                one.body_left,
            )
            for number, one in self.streams.items()
        }
        return states, self.sent_frames, core.over, core.frames, core.unfinished, core.patience.left


def frames(chance: random.Random) -> list[bytes]:
    """Return frames of a client that mostly keeps to the rules."""
    found, begun, last = [], [1], 1
    found.append(headers(1))
    for _ in range(40):
        drawn = chance.random()
        number = chance.choice(begun)
        if drawn < 0.15:
            last += 2
            begun.append(last)
            found.append(headers(last))
        elif drawn < 0.2:
            found.append(frame(PING, 0, 0, bytes(8)))
        elif drawn < 0.22:
            found.append(frame(RST_STREAM, 0, number, CANCEL.to_bytes(4)))
        elif drawn < 0.23:
            found.append(data(number, bytes((1 << 14) + 1)))
        else:
            size = chance.choice([0, 1, 40, 1000, 5000, 1 << 14, 1 << 14])
            flags = chance.choices([0, END_STREAM, PADDED], [10, 1, 1])[0]
            payload = chance.randbytes(size)
            if flags & PADDED:
                payload = b"\x07" + payload[:1000] + bytes(7)
            found.append(data(number, payload, flags))
    return found


@pytest.mark.parametrize("longest", [pytest.param(1, marks=exhaustive), 60, 20_000, 200_000])
def test_the_same_is_understood_however_it_is_cut(longest: int) -> None:
    landed = 0
    for seed in range(2 if longest == 1 else 20):
        chance = random.Random(seed)
        sent = frames(chance)
        whole, cut = Taker(in_place=False), Taker(in_place=True)
        for one in sent:
            whole.receive(one)
        left = b"".join(sent)
        while left:
            size = chance.randint(1, longest)
            cut.receive(left[:size])
            left = left[size:]
        assert cut.found() == whole.found(), seed
        landed += sum(one.sunk_bytes for one in cut.streams.values())
    assert landed > 50_000, "nothing landed, so nothing was tried"


def landing() -> tuple[Served, Stream[Http2RequestHead]]:
    """A connection with a stream that has a sink."""
    served = Served()
    stream = served.one(headers(1))
    stream.sink = memoryview(bytearray(SINK_BYTES))
    return served, stream


def pour(served: Served, given: bytes) -> None:
    core, at, memory = served.connection, 0, bytearray(given)
    while at < len(memory):
        at += core.receive_in_place(memoryview(memory)[at:])[0]
    # As the next read does, for whichever connection.
    memory[:] = bytes(len(memory))


def test_a_frame_lands_as_it_comes() -> None:
    served, stream = landing()
    sent = data(1, PIECE, END_STREAM)
    pour(served, sent[:5000])
    assert stream.sunk_bytes == stream.received_bytes == 5000 - 9
    assert (served.connection.unfinished, stream.ended) == (True, False)
    pour(served, sent[5000:])
    assert stream.sink is not None
    assert bytes(stream.sink[: len(PIECE)]) == PIECE
    assert (served.connection.unfinished, stream.ended) == (False, True)
    assert not stream.pieces


def test_the_rest_of_a_frame_whose_stream_is_gone_is_passed_over() -> None:
    served, stream = landing()
    pour(served, data(1, PIECE)[:5000])
    assert stream.sink is not None
    served.connection.reset(stream)
    stream.sink[:] = bytes(SINK_BYTES)
    pour(served, data(1, PIECE)[5000:] + headers(3, END_STREAM))
    assert bytes(stream.sink) == bytes(SINK_BYTES), "it is another's now"
    assert list(served.connection.streams) == [3]
    assert not served.connection.over


def test_bytes_in_a_sink_that_is_taken_away_are_kept_as_a_piece() -> None:
    served, stream = landing()
    sent = data(1, PIECE)
    pour(served, sent[:5000])
    stream.sink = None
    pour(served, sent[5000:])
    assert b"".join(stream.pieces) == PIECE[5000 - 9 :]


def test_a_body_that_lands_in_a_sink_is_continued_on_either_way() -> None:
    served, stream = landing()
    sent = data(1, PIECE) + headers(3, END_STREAM)
    pour(served, sent[:5000])
    found = served.receive(sent[5000:])
    assert {one.number for one in found} == {1, 3}
    assert stream.sink is not None
    assert bytes(stream.sink[: len(PIECE)]) == PIECE


def test_landing_bytes_keep_to_the_windows() -> None:
    served, stream = landing()
    stream.sink = memoryview(bytearray(2 * STREAM_ROOM))
    for _ in range(STREAM_ROOM // len(PIECE)):
        pour(served, data(1, PIECE))
    assert stream.room == 0
    served.sent_frames()
    pour(served, data(1, b"x" * 100)[:20])
    (reset,) = served.sent_frames()
    assert (reset.kind, reset.payload) == (RST_STREAM, FLOW_CONTROL_ERROR.to_bytes(4))
    assert stream.gone
    pour(served, b"x" * 89 + headers(3))
    assert list(served.connection.streams) == [3]


def test_landing_bytes_keep_to_the_window_of_the_connection() -> None:
    served, _ = landing()
    core = served.connection
    core.most_waiting_bytes = -1  # so that no room is given back
    for number in range(1, 2 * CONNECTION_ROOM // STREAM_ROOM + 1, 2):
        if number > 1:
            served.one(headers(number)).sink = memoryview(bytearray(SINK_BYTES))
        for _ in range(STREAM_ROOM // len(PIECE)):
            pour(served, data(number, PIECE))
    assert not served.sent_frames()
    number = 2 * CONNECTION_ROOM // STREAM_ROOM + 1
    served.one(headers(number)).sink = memoryview(bytearray(SINK_BYTES))
    pour(served, data(number, b"x"))
    assert int.from_bytes(served.sent_frames()[-1].payload[4:8]) == FLOW_CONTROL_ERROR


@pytest.mark.parametrize(("size", "flags"), [(5, 0), (3, END_STREAM)])
def test_landing_bytes_keep_to_the_announced_length(size: int, flags: int) -> None:
    served, stream = landing()
    stream.body_left = 4
    pour(served, data(1, bytes(size), flags))
    assert served.sent_frames()[-1].payload == PROTOCOL_ERROR.to_bytes(4)
    assert stream.gone


def test_small_pieces_that_land_cost_patience() -> None:
    served, _ = landing()
    before = served.connection.patience.left
    pour(served, data(1, b"x") * 100)
    assert served.connection.patience.left == before - 100
