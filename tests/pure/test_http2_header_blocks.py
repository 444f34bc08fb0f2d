"""Header blocks over HTTP/2 (RFC 9113, 4.3 and 6.10): pieces, tables that change, what is none."""

import itertools

import pytest
from hpack import Encoder
from http2_harness import USUAL, Served, block, data, frame, headers

from ringbatch.frontend.http2.connection import MOST_PIECES
from ringbatch.frontend.http2.frames import (
    COMPRESSION_ERROR,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PING,
    PROTOCOL_ERROR,
    StreamFault,
)
from ringbatch.frontend.http2.header_rules import expect_trailers
from ringbatch.frontend.http2.header_text import STATUS_200, field

HEAD = STATUS_200 + field(b"content-type", b"t")


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
def test_an_invalid_block_ends_the_connection(wrong: bytes) -> None:
    assert Served().refused(headers(1, 0, wrong)) == COMPRESSION_ERROR


def test_a_block_that_grows_beyond_measure_ends_the_connection() -> None:
    entry = Encoder().encode([(b"bomb", b"x" * 3900)], huffman=False)
    sent = headers(1, 0, block() + entry + b"\xbe" * 100)
    assert Served().refused(sent) == COMPRESSION_ERROR


def test_the_same_bytes_have_the_meaning_of_the_table() -> None:
    """Remembered blocks are not used beyond a change of the table."""
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


def test_values_have_no_ends_of_lines_and_no_blanks_around_them() -> None:
    """All short values are tried, by RFC 9113, 8.2.1."""
    for letters in itertools.product(b"\0\r\n \ta", repeat=4):
        for value in (bytes(letters), bytes(letters[:2])):
            sound = not {*value} & {*b"\0\r\n"} and value == value.strip(b" \t")
            try:
                expect_trailers([(b"a", value)])
            except StreamFault:
                assert not sound, value
            else:
                assert sound, value
