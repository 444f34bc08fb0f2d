"""The fast lane over a transport that records: one connection, fed by hand."""

import asyncio
import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from http_harness import (
    ESCAPED,
    IDLE_TIMEOUT_S,
    WAITS,
    Connection,
    request,
    response,
    scenario,
)
from hypothesis import given
from hypothesis import strategies as st
from silent_recorder import recorder_to

from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.writer import Writer
from ringbatch.frontend.codec.outcome import JSON
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.content_coding import MIN_ENCODED_BYTES, SLOW_BYTES
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane import MAX_WAITING_BYTES
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S
from ringbatch.frontend.http.head import MAX_HEAD_BYTES
from ringbatch.frontend.http.phases import (
    BODY_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    LEAST_TAKEN_BYTES,
    WRITE_TIMEOUT_S,
)
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.log_lines import LineFormatter
from ringbatch.shm.tallies import CLIENT_GONE, Protocol

TRICKLED_CPU_S = 1.0


@scenario
async def test_a_whole_request_goes_to_the_service_and_its_answer_to_the_client() -> None:
    connection = Connection()
    for body in (b"{}", b"{}", b"[1]", b""):
        connection.feed(request(body))
        assert (connection.calls[-1].model, connection.calls[-1].body) == ("m", body)
        assert connection.transport.written == b""
        connection.calls[-1].answer()
        assert connection.transport.written == response(len(body))
        connection.transport.written = b""
    assert len(connection.calls) == 4


@scenario
async def test_an_error_has_its_status_line() -> None:
    connection = Connection()
    connection.feed(request(b"{}"))
    connection.calls[0].reply((503, b"{}", (*JSON, ("retry-after", "1"))))
    head, body = connection.transport.written.split(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 503 Service Unavailable"
    assert b"retry-after: 1" in head
    assert body == b"{}"


@scenario
async def test_the_date_is_the_servers_latest() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.state.default_headers = [(b"date", b"tomorrow")]
    connection.feed(request(b"{}"))
    assert connection.transport.written == response(2) + response(2).replace(b"today", b"tomorrow")


@scenario
async def test_a_large_answer_has_its_length() -> None:
    connection = Connection()
    connection.feed(request(b"{}"))
    connection.calls[0].reply((200, b"x" * 100_000, JSON))
    assert connection.transport.written.endswith(b"content-length: 100000\r\n\r\n" + b"x" * 100_000)


THREE = request(b'{"instances":[1]}') + request(b"") + request(b"{}", b"A: b")


@pytest.mark.parametrize("at_once", [True, False])
def test_delivery_in_two_pieces_equals_whole_delivery(at_once: bool) -> None:
    for split in range(len(THREE)):
        asyncio.run(deliver([THREE[:split], THREE[split:]], at_once))


@pytest.mark.parametrize("at_once", [True, False])
def test_delivery_byte_by_byte_equals_whole_delivery(at_once: bool) -> None:
    asyncio.run(deliver([THREE[i : i + 1] for i in range(len(THREE))], at_once))


@given(st.lists(st.integers(0, len(THREE)), max_size=6), st.booleans())
def test_delivery_in_any_pieces_equals_whole_delivery(cuts: list[int], at_once: bool) -> None:
    edges = [0, *sorted(cuts), len(THREE)]
    pieces = [THREE[a:b] for a, b in itertools.pairwise(edges) if a < b]
    asyncio.run(deliver(pieces, at_once))


async def deliver(pieces: list[bytes], at_once: bool) -> None:
    connection = Connection(at_once=at_once)
    for piece in pieces:
        connection.feed(piece)
        await connection.settle()
    answered = 0
    while not at_once and answered < len(connection.calls):
        assert len(connection.calls) == answered + 1, "one is in flight at a time"
        connection.calls[answered].answer()
        answered += 1
        await connection.settle()
    assert [call.body for call in connection.calls] == [b'{"instances":[1]}', b"", b"{}"]
    assert connection.transport.written == response(17) + response(0) + response(2)


@scenario
async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    connection = Connection()
    bodies = [b"x" * n for n in range(1, 20)]
    connection.feed(b"".join(map(request, bodies)))
    for count, body in enumerate(bodies, 1):
        await connection.settle()
        assert len(connection.calls) == count
        assert connection.calls[-1].body == body
        connection.calls[-1].answer()
    assert connection.transport.written == b"".join(response(len(body)) for body in bodies)


@scenario
async def test_very_many_pipelined_requests_answered_at_once_do_not_pile_up_on_the_stack() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}") * 5000)
    while len(connection.calls) < 5000:
        await asyncio.sleep(0)
    assert connection.transport.written == response(2) * 5000


@scenario
async def test_reading_stops_while_too_much_waits_and_goes_on_afterwards() -> None:
    connection = Connection()
    connection.feed(request(b"{}"))
    connection.feed(request(b"y" * MAX_WAITING_BYTES))
    assert not connection.transport.is_reading()
    connection.calls[0].answer()
    await connection.settle()
    assert connection.transport.is_reading()
    assert len(connection.calls) == 2


@scenario
async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    connection = Connection(at_once=True)
    connection.lane.pause_writing()
    assert not connection.transport.is_reading()
    connection.feed(request(b"{}") + request(b"{}"))
    await connection.settle()
    assert connection.calls == []
    connection.lane.resume_writing()
    await connection.settle()
    assert connection.transport.is_reading()
    assert connection.transport.written == response(2) * 2


@scenario
async def test_connection_close_is_honoured() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}", b"Connection: close") + request(b"{}"))
    await connection.settle()
    assert connection.transport.written == response(2, close=True)
    assert connection.transport.is_closing()
    assert len(connection.calls) == 1


@scenario
async def test_a_client_that_goes_away_abandons_its_call() -> None:
    connection = Connection()
    connection.feed(request(b"{}"))
    connection.transport.close()
    assert connection.calls[0].abandoned
    assert connection.state.connections == set()


@scenario
async def test_a_foreign_request_is_handed_over_with_every_byte() -> None:
    connection = Connection()
    connection.feed(request(b"first", path=ESCAPED) + request(b"second"))
    await connection.settle()
    assert connection.seen == [
        ("POST /v1/models/m:predict", b"first"),
        ("POST /v1/models/m:predict", b"second"),
    ]
    assert connection.transport.written.count(b"falcon") == 2
    assert isinstance(connection.transport.protocol, FallbackProtocol)
    assert connection.state.connections == {connection.transport.protocol}
    assert connection.handed_over == 1
    assert connection.calls == []


@scenario
async def test_a_handover_may_happen_within_any_request() -> None:
    data = request(b"first", path=ESCAPED)
    for split in range(len(data)):
        connection = Connection()
        connection.feed(data[:split])
        connection.feed(data[split:])
        await connection.settle()
        assert connection.seen == [("POST /v1/models/m:predict", b"first")]


@scenario
async def test_a_handover_waits_for_the_answer_before_it() -> None:
    connection = Connection()
    connection.feed(request(b"{}") + request(b"later", path=ESCAPED))
    await connection.settle()
    assert connection.handed_over == 0
    connection.calls[0].answer()
    await connection.settle()
    assert connection.seen == [("POST /v1/models/m:predict", b"later")]
    assert connection.transport.written.startswith(response(2) + b"HTTP/1.1 200 OK")


@scenario
async def test_a_handover_takes_a_pause_of_writing_along() -> None:
    connection = Connection(at_once=True)
    connection.feed(request(b"{}"))
    connection.feed(request(b"{}", path=ESCAPED)[:30])
    connection.lane.pause_writing()
    connection.lane.resume_writing()
    connection.feed(request(b"{}", path=ESCAPED)[30:])
    await connection.settle()
    assert connection.transport.is_reading()
    assert connection.seen == [("POST /v1/models/m:predict", b"{}")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\nHost: x\n",
        b"POST /v1/models/m:predict HTTP/1.1\nHost: x\n\n",
        request(b"{}", b"Content-Length: 3"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length: abc"),
        request(b"{}", b"Transfer-Encoding: chunked"),
        request(b"{}", b"bad header : x"),
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_json(data: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(data)
        await connection.settle()
        head, body = connection.transport.written.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"content-type: application/json" in head
        assert body.startswith(b'{"error":"this is not an HTTP/1.1 request: ')
        assert connection.transport.is_closing()
        assert connection.calls == []
        assert connection.seen == []

    asyncio.run(test())


@scenario
async def test_garbage_behind_a_request_does_not_cost_its_answer() -> None:
    connection = Connection()
    connection.feed(request(b"{}", path=ESCAPED) + b"garbage\r\n\r\n")
    await connection.settle()
    first, second = connection.transport.written.split(b"falcon")
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 400 Bad Request")
    assert connection.transport.is_closing()


@pytest.mark.parametrize(
    "start", [b"POST /v1/models/m:predict HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nA: "]
)
def test_a_head_without_end_is_refused(start: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(start)
        for _ in range(MAX_HEAD_BYTES // 1000 + 1):
            connection.feed(b"a" * 1000)
        assert connection.transport.written.startswith(b"HTTP/1.1 431 ")
        assert connection.transport.is_closing()
        assert connection.ended == [(Protocol.HTTP, 431, "")]

    asyncio.run(test())


@scenario
async def test_a_head_that_trickles_in_costs_no_more_the_longer_it_gets() -> None:
    connection = Connection(at_once=True)
    head = request(b"", b"A: " + b"a" * (MAX_HEAD_BYTES - 100))
    began_s = time.process_time()
    for at in range(len(head)):
        connection.feed(head[at : at + 1])
    # Looked through as a whole for each byte, it takes twenty times as long.
    assert time.process_time() - began_s < TRICKLED_CPU_S
    assert connection.transport.written == response(0)


@pytest.mark.parametrize(
    ("pieces", "foreign"),
    [
        ((b"A: b\r", b"\n"), False),
        ((b"A: b\r\n", b"\r\n"), False),
        ((b"A: b", b"\n"), True),
        ((b"A: b\r\n", b"\n"), True),
    ],
)
def test_where_a_line_ends_does_not_depend_on_how_it_comes(
    pieces: tuple[bytes, ...], foreign: bool
) -> None:
    async def test() -> None:
        connection = Connection(at_once=True)
        connection.feed(request(b"")[:-2])
        for piece in pieces:
            connection.feed(piece)
        assert connection.handed_over == foreign

    asyncio.run(test())


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


KEY = b"a-key-of-the-tests"
KEYED = request(b"{}", b"X-API-Key: " + KEY)


@pytest.mark.parametrize(
    "head", [KEYED[:-2], b"\0" * (len(KEYED) - 2)], ids=["the-same", "no-head"]
)
def test_nothing_that_a_removed_key_allowed_is_allowed_any_more(head: bytes) -> None:
    async def test() -> None:
        keys = ApiKeys([hashlib.sha256(KEY).digest()])
        connection = Connection(at_once=True, keys=keys)
        connection.feed(KEYED)
        assert len(connection.calls) == 1
        keys.replace([hashlib.sha256(b"another").digest()])
        connection.heads.forget()
        connection.lane.forget()
        connection.feed(head + b"{}")
        assert len(connection.calls) == 1
        assert connection.handed_over == 1

    asyncio.run(test())


@scenario
async def test_an_answer_is_encoded_as_its_own_request_accepts_whatever_changes_meanwhile() -> None:
    connection = Connection()
    connection.feed(request(b"{}", b"Accept-Encoding: gzip"))
    connection.lane.forget()
    connection.calls[0].reply((200, b"x" * MIN_ENCODED_BYTES, JSON))
    assert b"content-encoding: gzip" in connection.transport.written


def logged(*lines: bytes) -> tuple[Connection, Callable[[], list[int]]]:
    """A connection that has asked with these lines in its head, and what gives the sizes of the
    answers that are logged by now."""
    written: list[bytes] = []
    writer = Writer(LineFormatter("f", "json"), written.append)
    connection = Connection(recorder=recorder_to(writer, AccessSettings("all")))
    connection.feed(request(b"{}", *lines))

    def sizes() -> list[int]:
        writer.write_waiting()
        return [json.loads(line)["bytes_out"] for line in b"".join(written).splitlines()]

    return connection, sizes


NOISE = random.Random(1).randbytes(SLOW_BYTES)


@pytest.mark.parametrize("lines", [(), (b"Accept-Encoding: gzip",)])
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "body",
    [b"x" * (MIN_ENCODED_BYTES - 1), b"x" * MIN_ENCODED_BYTES, b"x" * SLOW_BYTES, NOISE],
)
def test_the_size_of_an_answer_is_logged_as_it_is_sent(
    body: bytes, status: int, lines: tuple[bytes, ...]
) -> None:
    async def test() -> None:
        connection, sizes = logged(*lines)
        connection.calls[0].reply((status, body, JSON))
        while not connection.transport.written:
            await asyncio.sleep(0.001)
        await connection.settle()
        head, _, sent = connection.transport.written.partition(b"\r\n\r\n")
        encodes = bool(lines) and status == 200 and len(body) >= MIN_ENCODED_BYTES
        assert (b"content-encoding: gzip" in head) is encodes
        assert sizes() == [len(sent)]

    asyncio.run(test())


@scenario
async def test_of_an_answer_whose_client_leaves_before_it_is_encoded_nothing_is_sent() -> None:
    connection, sizes = logged(b"Accept-Encoding: gzip")
    connection.calls[0].reply((200, b"x" * SLOW_BYTES, JSON))
    assert sizes() == []
    connection.transport.close()
    assert sizes() == [0]


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
async def test_who_is_to_go_elsewhere_is_answered_once_and_not_closed_before() -> None:
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


OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
KEPT = b"\r\nconnection: keep-alive\r\n"


@scenario
async def test_an_http_1_0_client_keeps_its_connection_where_it_asks_to() -> None:
    connection = Connection()
    for answered in (1, 2):
        connection.feed(OLD)
        await until(lambda count=answered: connection.transport.written.count(b"falcon") == count)  # type: ignore[misc]
        assert connection.transport.written.count(KEPT) == answered
        assert not connection.transport.is_closing()
    connection.transport.protocol.leave()
    connection.feed(OLD)
    await until(connection.transport.is_closing)
    assert connection.transport.written.count(KEPT) == 2
    assert connection.transport.written.count(b"\r\nconnection: close\r\n") == 1


async def streaming(_scope: Any, _receive: Any, send: Any) -> None:
    """An application that says no length, but how it would be sent to others."""
    headers = [(b"Transfer-Encoding", b"chunked")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


@scenario
async def test_an_http_1_0_client_gets_a_body_of_unknown_length_without_chunks() -> None:
    for asked in (OLD, OLD.replace(b"Connection: keep-alive\r\n", b"")):
        connection = Connection(served=streaming)
        connection.feed(asked)
        await until(connection.transport.is_closing)
        head, _, body = bytes(connection.transport.written).partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head
        assert b"keep-alive" not in head


@scenario
async def test_an_http_1_0_client_that_is_answered_while_all_are_to_leave_is_told() -> None:
    connection = Connection()
    connection.feed(OLD.replace(b" / ", b" %b " % WAITS.encode()))
    await connection.settle()
    connection.transport.protocol.leave()
    connection.may_answer.set()
    await until(connection.transport.is_closing)
    assert KEPT not in connection.transport.written
    assert b"\r\nconnection: close\r\n" in connection.transport.written


@scenario
async def test_an_http_1_0_client_that_does_not_ask_is_answered_once() -> None:
    connection = Connection()
    connection.feed(b"GET / HTTP/1.0\r\n\r\n")
    await until(connection.transport.is_closing)
    assert KEPT not in connection.transport.written


@scenario
async def test_who_comes_while_all_are_to_go_elsewhere_is_answered_once() -> None:
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


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
