"""HTTP/2 floods: attackers' frames, and a connection's budget for them."""

import pytest
from hpack import Encoder
from http2_harness import USUAL, Served, block, call, data, frame, headers, settings, widen

from ringbatch.frontend.http2.connection import FIELDS_AT_ONCE, STREAMS_AT_ONCE
from ringbatch.frontend.http2.flood_budget import FREE_FIELDS, FREE_LIST_BYTES, MOST, STREAMS
from ringbatch.frontend.http2.frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    NO_ERROR,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
)
from ringbatch.frontend.http2.header_text import STATUS_200, field

HEAD = STATUS_200 + field(b"content-type", b"t")

TRAILERS = field(b"end", b"0")

WORD = (1).to_bytes(4, "big")

TIMES = 40_000

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
def test_a_flood_of_useless_frames_ends_the_connection(case: str) -> None:
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
    assert int.from_bytes(served.sent_frames()[-1].payload[4:8]) == ENHANCE_YOUR_CALM


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
    assert served.sent_frames()[-1].payload[7] == ENHANCE_YOUR_CALM


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
    assert served.sent_frames()[-1].payload[7] == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("huffman", [False, True])
def test_long_cookies_cost_nothing_however_many_there_are(huffman: bool) -> None:
    """Proxies send up to 32 KiB for many users on one connection; its bytes are paid for."""
    served = Served()
    cookies = [(b"cookie", b"e" * 14_000), (b"cookie", b"a" * 16_000)]
    # Cookies too long for the table of fields empty it, so a client sends the same each time.
    whole = Encoder().encode([*USUAL, *cookies], huffman=huffman)
    assert len(whole) > 1 << 14
    for number in range(1, 120, 2):
        first = frame(HEADERS, END_STREAM, number, whole[: 1 << 14])
        rest = frame(CONTINUATION, END_HEADERS, number, whole[1 << 14 :])
        assert served.one(first + rest).head.size > 30_000
    assert served.connection.patience.left == MOST - 1


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


def test_of_many_short_heads_some_are_read_at_once_and_the_others_in_order_later() -> None:
    served = Served()
    numbers = range(1, 2 * STREAMS_AT_ONCE + 20, 2)
    receive = served.connection.receive
    found = [receive(b"".join(headers(number, END_STREAM) for number in numbers))]
    while served.connection.behind:
        found.append(receive(b""))
    assert [len(streams) for streams in found] == [STREAMS_AT_ONCE, 10]
    assert [stream.number for streams in found for stream in streams] == [*numbers]


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


def test_windows_of_many_streams_cost_more() -> None:
    """Else few bytes would have the server look at all streams again and again."""

    def costs(streams: int) -> int:
        served = Served()
        served.receive(b"".join(headers(2 * number + 1) for number in range(streams)))
        before = served.connection.patience.left
        served.receive(settings(window=1) + settings(window=1) + settings(window=2))
        return before - served.connection.patience.left

    assert costs(1024) == costs(1) + 2 * 1024 // STREAMS


def test_of_a_repeated_setting_the_last_one_holds() -> None:
    served = Served()
    stream = served.one(call(1))
    first, last = settings(window=0)[9:], settings(window=3)[9:]
    served.receive(frame(SETTINGS, 0, 0, first * 100 + last))
    served.connection.answer(stream, HEAD, b"answer", TRAILERS)
    assert served.sent_frames()[-1].payload == b"ans"


def test_a_served_client_may_send_the_frames_that_serving_takes() -> None:
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
    assert served.sent_frames()[-1].payload[7] == ENHANCE_YOUR_CALM


def test_one_answer_does_not_pay_for_a_flood() -> None:
    served = Served()
    ping = frame(PING, 0, 0, bytes(8))
    served.receive(ping * (MOST - 10))
    served.connection.answer(served.one(call(1)), HEAD, b"answer", TRAILERS)
    served.sent_frames()
    assert served.refused(ping * 100) == ENHANCE_YOUR_CALM


def test_patience_comes_back_with_time() -> None:
    served = Served()
    for _ in range(100):
        served.receive(frame(PING, 0, 0, bytes(8)) * 900)
        served.connection.tick()
        served.sent_frames()
    assert not served.connection.over
