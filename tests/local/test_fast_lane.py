"""The fast lane over a transport that records: requests and answers of one connection."""

import asyncio
import hashlib
import itertools
import json
import random
from collections.abc import Callable
from unittest.mock import patch

import pytest
from http_harness import Connection, request, response, scenario
from hypothesis import given
from hypothesis import strategies as st
from silent_recorder import recorder_to

from ringbatch.frontend.access.line_writer import Writer
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.codec.outcome import JSON
from ringbatch.frontend.http.content_coding import MIN_ENCODED_BYTES, SLOW_BYTES
from ringbatch.frontend.http.lane_connection import MAX_WAITING_BYTES
from ringbatch.frontend.http.request_tracking import RequestTracking
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.api_key_lines import KeyOptions
from ringbatch.shm.host.log_lines import LineFormatter


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
async def test_a_whole_request_takes_the_short_way_with_any_head() -> None:
    connection = Connection()
    with patch.object(RequestTracking, "begin") as begin:
        for number in range(3):
            connection.feed(request(b"{}", b"X-Request-Id: %d" % number))
            connection.calls[-1].answer()
            assert b"x-request-id: %d\r\n" % number in connection.transport.written
        begin.assert_not_called()
        data = request(b"{}", b"X-Request-Id: 3")
        connection.feed(data[:-1])
        connection.feed(data[-1:])
        begin.assert_called_once()


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
    for count in range(1, 5000):
        # Others have their turn after each.
        assert len(connection.calls) == count
        assert not connection.transport.is_reading() or count > 1000
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


KEY = b"a-key-of-the-tests"
KEYED = request(b"{}", b"X-API-Key: " + KEY)


@pytest.mark.parametrize(
    "head", [KEYED[:-2], b"\0" * (len(KEYED) - 2)], ids=["the-same", "no-head"]
)
def test_nothing_that_a_removed_key_allowed_is_allowed_any_more(head: bytes) -> None:
    async def test() -> None:
        keys = ApiKeys({hashlib.sha256(KEY).digest(): KeyOptions()})
        connection = Connection(at_once=True, keys=keys)
        connection.feed(KEYED)
        assert len(connection.calls) == 1
        keys.replace({hashlib.sha256(b"another").digest(): KeyOptions()})
        connection.heads.forget()
        connection.lane.forget()
        connection.feed(head + b"{}")
        assert len(connection.calls) == 1
        assert connection.handed_over == 1

    asyncio.run(test())


@scenario
async def test_an_answer_is_encoded_as_its_own_request_accepts() -> None:
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
