"""Ends of a connection of the fast lane: by time, for lack of memory, by a stop."""

import asyncio

import pytest
from http_harness import (
    ESCAPED,
    IDLE_TIMEOUT_S,
    WAITS,
    Connection,
    request,
    response,
    scenario,
    until,
)

from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S
from ringbatch.frontend.http.phases import (
    BODY_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    LEAST_TAKEN_BYTES,
    WRITE_TIMEOUT_S,
)
from ringbatch.shm.tallies import CLIENT_GONE, Protocol


@pytest.mark.parametrize("start", [b"POST /v1/models/m", b"GET / HTTP/1.1\r\nA: "])
def test_a_head_that_trickles_in_is_refused_when_its_time_is_over(start: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        for byte in start:
            connection.feed(bytes([byte]))
        for second in range(HEAD_TIMEOUT_S):
            connection.transport.protocol.tick()
            assert not connection.transport.is_closing(), second
            if second % 3 == 0 and start.startswith(b"GET"):
                connection.feed(b"a")
        connection.transport.protocol.tick()
        assert connection.transport.written.startswith(b"HTTP/1.1 408 ")
        assert connection.transport.is_closing()

    asyncio.run(test())


@pytest.mark.parametrize("path", [b"/v1/models/m:predict", ESCAPED])
def test_a_body_that_does_not_come_is_refused_when_its_time_is_over(path: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(request(b"0123456789", path=path)[:-1])
        await connection.settle()
        for _ in range(BODY_TIMEOUT_S):
            connection.transport.protocol.tick()
        assert not connection.transport.is_closing()
        connection.transport.protocol.tick()
        assert connection.transport.written.startswith(b"HTTP/1.1 408 ")
        assert connection.transport.is_closing()
        await connection.settle()
        connection.transport.protocol.connection_lost(None)
        if path != ESCAPED:
            assert connection.ended == [(Protocol.V1, 408, "m")]

    asyncio.run(test())


@scenario
async def test_an_idle_connection_is_closed_after_its_time_and_a_busy_one_is_not() -> None:
    connection = Connection()
    for _ in range(IDLE_TIMEOUT_S):
        connection.lane.tick()
    connection.feed(request(b"{}"))
    for _ in range(10 * IDLE_TIMEOUT_S):
        connection.lane.tick()
    connection.calls[0].answer()
    for _ in range(IDLE_TIMEOUT_S):
        connection.lane.tick()
    assert not connection.transport.is_closing()
    connection.lane.tick()
    assert connection.transport.is_closing()
    assert connection.transport.written == response(2)


LARGE = request(b"x" * 100_000)


@scenario
async def test_a_large_body_for_which_no_memory_is_left_is_refused() -> None:
    budget = BodyBudget(150_000)
    first, second = Connection(budget=budget), Connection(budget=budget)
    first.feed(LARGE[:90_000])
    second.feed(LARGE[:1_000])
    assert second.transport.written == b""
    second.feed(LARGE[1_000:90_000])
    assert second.transport.written.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in second.transport.written
    assert second.transport.closed
    assert second.ended == [(Protocol.V1, 503, "m")]
    first.feed(LARGE[90_000:])
    first.calls[0].answer()
    assert b"200 OK" in first.transport.written
    budget.take(150_000)


@scenario
async def test_a_client_that_goes_away_in_a_large_body_leaves_its_memory() -> None:
    budget = BodyBudget(150_000)
    for _ in range(5):
        connection = Connection(budget=budget)
        connection.feed(LARGE[:90_000])
        connection.transport.close()
        assert [code for _, code, _ in connection.ended] == [CLIENT_GONE]
    budget.take(150_000)


@scenario
async def test_a_client_that_never_reads_its_answer_is_given_up() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.transport.left_bytes = 1 << 20
    connection.lane.pause_writing()
    for _ in range(WRITE_TIMEOUT_S):
        connection.lane.tick()
        assert not connection.transport.closed
    connection.lane.tick()
    assert connection.transport.closed


@scenario
async def test_a_client_that_never_reads_its_last_answer_is_given_up() -> None:
    connection = Connection()
    connection.feed(request(b"{}", b"Connection: close"))
    connection.transport.left_bytes = 100
    connection.calls[0].answer()
    for _ in range(WRITE_TIMEOUT_S):
        connection.lane.tick()
        assert not connection.transport.closed
    connection.lane.tick()
    assert connection.transport.closed


@scenario
async def test_a_client_that_never_reads_is_given_up_after_a_handover_too() -> None:
    connection = Connection()
    connection.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await connection.settle()
    protocol = connection.transport.protocol
    assert isinstance(protocol, FallbackProtocol)
    connection.transport.left_bytes = 1 << 20
    protocol.pause_writing()
    for _ in range(WRITE_TIMEOUT_S):
        protocol.tick()
        assert not connection.transport.closed
    protocol.tick()
    assert connection.transport.closed


@scenario
async def test_a_client_that_reads_slowly_is_waited_for() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.lane.pause_writing()
    for second in range(4 * WRITE_TIMEOUT_S):
        connection.transport.left_bytes = (1 << 30) - second * (LEAST_TAKEN_BYTES // 10)
        connection.lane.tick()
    connection.lane.resume_writing()
    assert not connection.transport.closed


@scenario
async def test_a_stop_closes_an_idle_connection_without_a_word() -> None:
    connection = Connection()
    connection.lane.shutdown()
    await until(lambda: connection.transport.is_closing())
    assert connection.transport.written == b""


@scenario
async def test_a_stop_finishes_the_request_in_flight_and_says_that_it_closes() -> None:
    connection = Connection()
    connection.feed(request(b"{}") + request(b"{}"))
    connection.lane.shutdown()
    connection.calls[0].answer()
    assert connection.transport.written == response(2, close=True)
    assert connection.transport.is_closing()


@scenario
async def test_a_stop_still_answers_a_request_that_was_on_its_way() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.transport.written = b""
    connection.lane.shutdown()
    connection.feed(request(b"{}"))
    assert connection.transport.written == response(2, close=True)
    assert connection.transport.is_closing()


@scenario
async def test_a_connection_that_comes_after_the_stop_is_served_once() -> None:
    connection = Connection(at_once=True, stopping=True)
    connection.feed(request(b"{}"))
    assert connection.transport.written == response(2, close=True)
    assert connection.transport.is_closing()
    connection = Connection(stopping=True)
    await until(connection.transport.is_closing)


@scenario
async def test_a_leaving_client_is_answered_once_and_not_closed_before() -> None:
    for text in (request(b"{}"), request(b"{}", path=ESCAPED)):
        connection = Connection(at_once=True)
        connection.feed(request(b"{}"))
        connection.lane.leave()
        await asyncio.sleep(2 * CLOSE_GRACE_S)
        assert not connection.transport.is_closing()
        connection.transport.written = b""
        connection.feed(text)
        await until(connection.transport.is_closing)
        assert b"\r\nconnection: close\r\n" in connection.transport.written
        assert b"200 OK" in connection.transport.written


@scenario
async def test_on_falcons_side_too() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}", path=ESCAPED))
    await until(lambda: b"falcon" in connection.transport.written)
    connection.transport.protocol.leave()
    await asyncio.sleep(2 * CLOSE_GRACE_S)
    assert not connection.transport.is_closing()
    connection.transport.written = b""
    connection.feed(request(b"{}", path=ESCAPED))
    await until(connection.transport.is_closing)
    assert b"\r\nconnection: close\r\n" in connection.transport.written
    # One that is being answered already.
    connection = Connection(at_once=True)
    connection.feed(request(b"{}", path=WAITS.encode()))
    await connection.settle()
    connection.transport.protocol.leave()
    connection.may_answer.set()
    await until(connection.transport.is_closing)
    assert b"\r\nconnection: close\r\n" in connection.transport.written


@scenario
async def test_a_client_that_comes_while_all_leave_is_answered_once() -> None:
    connection = Connection(at_once=True, leaving=True)
    await asyncio.sleep(2 * CLOSE_GRACE_S)
    connection.feed(request(b"{}"))
    assert connection.transport.written == response(2, close=True)


@scenario
async def test_a_stop_waits_for_the_rest_of_a_body() -> None:
    connection = Connection(at_once=True)
    data = request(b"0123456789")
    connection.feed(data[:-1])
    connection.lane.shutdown()
    await asyncio.sleep(0.3)
    assert not connection.transport.is_closing()
    connection.feed(data[-1:])
    assert connection.transport.written == response(10, close=True)
