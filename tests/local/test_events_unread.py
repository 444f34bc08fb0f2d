"""Answers in parts on the fast lane whose clients do not read, or that pause.

Tests frontend/http/event_answer.py.
"""

import pytest
from event_harness import LAST, asked, chunk, deaf, framed, head
from http_harness import Connection, scenario

from ringbatch.frontend.codec.event_stream import COMMENT, MOST_UNREAD_BYTES, SILENCE_S
from ringbatch.frontend.codec.outcome import outcome
from ringbatch.frontend.http.phases import WRITE_TIMEOUT_S
from ringbatch.shm.errors import Overloaded


@scenario
async def test_a_client_that_does_not_read_gets_so_much_and_an_error() -> None:
    connection, call = deaf()
    part = b"x" * (MOST_UNREAD_BYTES // 4)
    for _ in range(4):
        call.parts(part)
    # Four are with their frames a little more than the limit.
    with pytest.raises(Overloaded, match=f"has not read {MOST_UNREAD_BYTES} bytes") as caught:
        call.parts(part)
    call.reply(outcome(caught.value))
    error = b'{"error":"the client has not read 1048576 bytes of the answer"}'
    assert connection.transport.written == head() + 4 * chunk(part) + chunk(error) + LAST
    # It is not read from either, now that there is nothing to abandon.
    assert not connection.transport.is_reading()


@scenario
async def test_parts_that_wait_to_leave_together_count_as_unread() -> None:
    connection = Connection()
    call = asked(connection)
    part = b"x" * (MOST_UNREAD_BYTES // 2)
    with pytest.raises(Overloaded):
        call.parts(part, part, part)
    assert connection.transport.written == b""


@scenario
async def test_a_client_that_reads_again_may_leave_as_much_unread_again() -> None:
    connection, call = deaf()
    part = b"x" * MOST_UNREAD_BYTES
    for _ in range(3):
        call.parts(part)
        connection.transport.left_bytes = 0
        connection.lane.resume_writing()
    call.end()
    assert connection.transport.written == head() + 3 * chunk(part) + LAST


@scenario
async def test_a_client_that_does_not_read_may_leave() -> None:
    connection, call = deaf()
    call.parts(b"1")
    # What it does not read is no reason not to read from it: so its end is seen.
    assert connection.transport.is_reading()
    connection.transport.left_bytes = 0
    connection.transport.close()
    assert call.abandoned


@scenario
async def test_a_client_that_reads_nothing_for_a_minute_is_given_up() -> None:
    connection, call = deaf()
    call.parts(b"1")
    for _ in range(WRITE_TIMEOUT_S):
        # More of the answer is no sign that anything was taken.
        call.parts(b"x" * 1000)
        connection.lane.tick()
        assert not connection.transport.closed
    connection.lane.tick()
    assert connection.transport.closed
    assert call.abandoned


@scenario
async def test_seconds_in_which_a_client_takes_nothing_are_counted() -> None:
    connection, call = deaf()
    assert call.in_parts is not None
    stalled_s = call.in_parts.stalled_s
    for _ in range(3):
        connection.lane.tick()
    assert stalled_s() == 0, "nothing waits for it"
    call.parts(b"1")
    connection.lane.tick()
    for second in range(1, 4):
        # More of the answer is no sign that anything was taken.
        call.parts(b"2")
        connection.lane.tick()
        assert stalled_s() == second
    connection.transport.left_bytes -= 1
    assert stalled_s() == 0
    connection.lane.tick()
    assert stalled_s() == 0
    connection.lane.tick()
    assert stalled_s() == 1
    connection.transport.left_bytes = 0
    assert stalled_s() == 0


@scenario
async def test_a_client_that_takes_as_much_as_comes_is_waited_for() -> None:
    connection, call = deaf()
    call.parts(b"x" * 200_000)
    for _ in range(3 * WRITE_TIMEOUT_S):
        before = connection.transport.left_bytes
        call.parts(b"x" * 2000)
        connection.transport.left_bytes = before
        connection.lane.tick()
    assert not connection.transport.closed


@scenario
async def test_bytes_that_a_client_takes_behind_the_answer_count_from_its_end() -> None:
    connection, call = deaf()
    call.parts(b"x" * 1_000_000)
    for _ in range(WRITE_TIMEOUT_S // 2):
        connection.lane.tick()
    call.end()
    for _ in range(3 * WRITE_TIMEOUT_S):
        connection.transport.left_bytes -= 2000
        connection.lane.tick()
    assert not connection.transport.closed


@scenario
async def test_a_client_that_read_nothing_before_the_answer_is_read_from_once_it_begins() -> None:
    connection = Connection()
    call = asked(connection)
    connection.lane.pause_writing()
    assert not connection.transport.is_reading()
    call.parts(b"1")
    assert connection.transport.is_reading()


@scenario
async def test_silence_is_broken_by_comments() -> None:
    connection = Connection()
    call = asked(connection)
    for _ in range(60):
        connection.lane.tick()
    assert connection.transport.written == b""
    call.parts(b"1")
    seconds = int(SILENCE_S)
    for _ in range(seconds - 1):
        connection.lane.tick()
    assert connection.transport.written == head() + chunk(b"1")
    connection.lane.tick()
    assert connection.transport.written == head() + chunk(b"1") + framed(COMMENT)
    for _ in range(seconds - 1):
        connection.lane.tick()
    # A part is no silence.
    call.parts(b"2")
    for _ in range(seconds - 1):
        connection.lane.tick()
    begun = head() + chunk(b"1") + framed(COMMENT) + chunk(b"2")
    assert connection.transport.written == begun
    connection.lane.tick()
    call.end()
    assert connection.transport.written == begun + framed(COMMENT) + LAST
    for _ in range(seconds):
        connection.lane.tick()
    assert connection.transport.written == begun + framed(COMMENT) + LAST


@scenario
async def test_a_client_that_does_not_read_gets_no_comments() -> None:
    connection, call = deaf()
    call.parts(b"1")
    for _ in range(3 * int(SILENCE_S)):
        connection.lane.tick()
    assert connection.transport.written == head() + chunk(b"1")
