"""Answers that are read, and waits of the queue that continuous batches are compared with."""

import json
import socket

import pytest
from continuous import MEAN_STEPS, PLACES, Exchange, lengths, message, waits_ms
from load.answers import WrongAnswer

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def answer(numbers: list[int]) -> bytes:
    return json.dumps({"predictions": [numbers]}, separators=(",", ":")).encode()


def taken(data: bytes, *, in_parts: bool) -> bool:
    """Return whether an exchange that asked for 3 steps has ended with what came."""
    own, other = socket.socketpair()
    with own, other:
        exchange = Exchange(own)
        exchange.ask("continuous", 3, 1.0, in_parts=in_parts)
        assert other.recv(1 << 16) == message("continuous", 3, in_parts=in_parts)
        other.sendall(data)
        return exchange.take(2.0, in_parts=in_parts)


def test_an_answer_ends_with_its_last_byte_and_must_be_right() -> None:
    whole = HEAD + answer([0, 1, 2])
    assert taken(whole, in_parts=False)
    assert not taken(whole[:-1], in_parts=False)
    with pytest.raises(WrongAnswer):
        taken(HEAD + answer([0, 2]), in_parts=False)
    parts = b"".join(b"data: %b\n\n" % answer([number]) for number in range(3))
    assert taken(HEAD + parts + b"0\r\n\r\n", in_parts=True)
    assert not taken(HEAD + parts, in_parts=True)
    with pytest.raises(WrongAnswer):
        taken(HEAD + parts + parts + b"0\r\n\r\n", in_parts=True)


def test_waits_grow_with_the_load() -> None:
    most = 1e3 * PLACES / MEAN_STEPS
    waits = [waits_ms(load * most, 1.0, 20, 1) for load in (0.1, 0.8, 2.0)]
    assert max(waits[0]) == 0.0
    assert 0.0 < max(waits[1]) < max(waits[2])


def test_lengths_have_their_mean() -> None:
    own = lengths(1)
    found = [next(own) for _ in range(20_000)]
    assert abs(sum(found) / len(found) - MEAN_STEPS) < 1.5
