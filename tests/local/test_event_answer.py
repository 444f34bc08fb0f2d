"""Answers in parts on the fast lane, over a transport that records.

Tests frontend/http/event_answer.py.
"""

import asyncio
import re
from typing import Final

import pytest
from event_harness import ACCEPT, ASK, LAST, asked, chunk, framed, head, logging
from http_harness import Connection, request, response, scenario

from ringbatch.frontend.codec.outcome import JSON, Headers, outcome
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane_states import State
from ringbatch.frontend.http.lane_connection import MAX_WAITING_BYTES
from ringbatch.shm.errors import InvalidRequest, ModelFailed

BINARY: Final[Headers] = (*JSON, ("inference-header-content-length", "5"))


@scenario
async def test_each_part_is_an_event_and_the_end_is_the_last_chunk() -> None:
    connection = Connection()
    call = asked(connection)
    assert connection.transport.written == b""
    call.parts(b"1")
    assert connection.transport.written == head() + chunk(b"1")
    call.parts(b"2")
    assert connection.transport.written == head() + chunk(b"1") + chunk(b"2")
    call.end()
    assert connection.transport.written == head() + chunk(b"1") + chunk(b"2") + LAST
    assert connection.handed_over == 0
    assert not call.abandoned


@scenario
async def test_parts_that_are_found_together_leave_in_one_write() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1", b"2", b"3")
    assert connection.transport.written == head() + chunk(b"1", b"2", b"3")
    assert connection.transport.writes == 1
    call.parts(b"4", b"5")
    assert connection.transport.writes == 2
    # The end of the answer too, if it is found with them.
    call.end(b"6", b"7")
    assert connection.transport.writes == 3
    assert connection.transport.written.endswith(chunk(b"6", b"7") + LAST)


@scenario
async def test_a_look_without_a_part_writes_nothing() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts()
    assert connection.transport.writes == 0
    call.parts(b"1")
    call.parts()
    assert connection.transport.writes == 1


@scenario
async def test_an_answer_without_a_part_has_a_head_and_an_end() -> None:
    connection = Connection()
    asked(connection).end()
    assert connection.transport.written == head() + LAST


@scenario
async def test_lines_of_a_part_are_lines_of_its_event() -> None:
    connection = Connection()
    asked(connection).parts(b"[1,\n2]", b"[3,\r\n4]")
    data = b"data: [1,\ndata: 2]\n\ndata: [3,\ndata: 4]\n\n"
    assert connection.transport.written == head() + framed(data)


@pytest.mark.parametrize(
    ("path", "generated", "json_bytes"),
    [
        (b"/v1/models/m:predict", 0, []),
        (b"/v2/models/m/infer", 0, [None]),
        (b"/v2/models/m/versions/1/generate_stream", 1, []),
    ],
)
def test_each_protocol_has_parts(path: bytes, generated: int, json_bytes: list[None]) -> None:
    async def test() -> None:
        connection = Connection()
        call = asked(connection, request(b"{}", ACCEPT, path=path))
        assert (connection.generated, connection.json_bytes) == (generated, json_bytes)
        call.end(b"1")
        assert connection.transport.written == head() + chunk(b"1") + LAST

    asyncio.run(test())


@scenario
async def test_generate_stream_has_parts_for_every_accept_header() -> None:
    connection = Connection()
    asked(connection, request(b"{}", path=b"/v2/models/m/generate_stream")).end(b"1")
    assert connection.transport.written == head() + chunk(b"1") + LAST


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ((ACCEPT, b"Accept: application/json"), b"/v1/models/m:predict"),
        ((ACCEPT, b"Inference-Header-Content-Length: 2"), b"/v2/models/m/infer"),
        ((ACCEPT, b"Accept-Encoding: gzip, identity;q=0"), b"/v1/models/m:predict"),
    ],
)
def test_other_requests_with_events_are_handed_over(lines: tuple[bytes, ...], path: bytes) -> None:
    async def test() -> None:
        connection = Connection()
        connection.feed(request(b"{}", *lines, path=path))
        assert connection.handed_over == 1
        assert isinstance(connection.transport.protocol, FallbackProtocol)

    asyncio.run(test())


@scenario
async def test_a_client_that_accepts_no_events_gets_none() -> None:
    connection = Connection()
    call = asked(connection, request(b"{}", b"Accept: text/event-stream;q=0, */*"))
    assert call.in_parts is None
    call.answer()
    assert connection.transport.written == response(2)


@scenario
async def test_an_error_before_the_first_part_is_an_answer_as_any() -> None:
    connection = Connection()
    asked(connection).reply(outcome(ModelFailed("no")))
    written = connection.transport.written
    assert written.startswith(b"HTTP/1.1 500 ")
    assert written.endswith(b'\r\n\r\n{"error":"no"}')
    assert b"text/event-stream" not in written
    asked(connection).end(b"1")
    assert connection.transport.written == written + head() + chunk(b"1") + LAST


@scenario
async def test_an_error_behind_a_part_is_the_last_event() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1")
    call.reply(outcome(ModelFailed("no")))
    events = chunk(b"1") + chunk(b'{"error":"no"}')
    assert connection.transport.written == head() + events + LAST
    # One that comes with parts follows them, in the same write.
    call = asked(connection)
    assert call.in_parts is not None
    call.in_parts.on_part((200, b"2", JSON))
    call.reply(outcome(ModelFailed("no")))
    assert connection.transport.written.endswith(head() + chunk(b"2", b'{"error":"no"}') + LAST)
    assert connection.transport.writes == 3


@scenario
async def test_a_whole_answer_is_one_event() -> None:
    connection = Connection()
    asked(connection).answer()
    assert connection.transport.written == head() + chunk(b'{"echo":2}') + LAST
    assert connection.transport.writes == 1


@scenario
async def test_binary_data_is_no_event() -> None:
    connection = Connection()
    call = asked(connection, request(b"{}", ACCEPT, b"Accept-Encoding: gzip"))
    assert call.in_parts is not None
    with pytest.raises(InvalidRequest, match="no binary data"):
        call.in_parts.on_part((200, b"{...}\0", BINARY))
    # A whole answer is sent as it is, and plain: its size would have had it encoded.
    call.reply((200, b"\0" * 5000, BINARY))
    assert b"\r\ncontent-length: 5000\r\n\r\n\0\0" in connection.transport.written


@scenario
async def test_a_connection_goes_on_behind_an_answer_in_parts() -> None:
    connection = Connection()
    for number in range(3):
        asked(connection).end(b"%d" % number)
        asked(connection, request(b"[1]")).answer()
    answers = [head() + chunk(b"%d" % number) + LAST + response(3) for number in range(3)]
    assert connection.transport.written == b"".join(answers)
    assert not connection.transport.is_closing()


@scenario
async def test_requests_behind_an_answer_in_parts_wait_for_its_end() -> None:
    connection = Connection()
    connection.feed(ASK + request(b"[1]") + ASK)
    connection.calls[0].parts(b"1")
    connection.feed(request(b"[1,2]"))
    await connection.settle()
    assert len(connection.calls) == 1
    connection.calls[0].end()
    await connection.settle()
    connection.calls[1].answer()
    await connection.settle()
    connection.calls[2].end(b"2")
    await connection.settle()
    connection.calls[3].answer()
    first, second = (head() + chunk(text) + LAST for text in (b"1", b"2"))
    assert connection.transport.written == first + response(3) + second + response(5)


@scenario
async def test_reading_stops_while_too_much_waits_behind_an_answer_in_parts() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1")
    connection.feed(request(b"y" * MAX_WAITING_BYTES))
    assert not connection.transport.is_reading()
    call.end()
    await connection.settle()
    assert connection.transport.is_reading()
    assert len(connection.calls) == 2


@pytest.mark.parametrize("parts", [0, 1])
def test_a_request_whose_client_leaves_is_abandoned_at_once(parts: int) -> None:
    async def test() -> None:
        connection, logged = logging()
        call = asked(connection)
        if parts:
            call.parts(b"1")
        connection.transport.close()
        assert call.abandoned
        assert logged() == [("made", len(b"data: 1\n\n") * parts)]

    asyncio.run(test())


@scenario
async def test_a_client_that_leaves_later_abandons_no_answer_that_has_ended() -> None:
    connection, logged = logging()
    streamed = asked(connection)
    streamed.end(b"1")
    whole = asked(connection, request(b"{}", b"X-Request-Id: own"))
    connection.transport.close()
    assert (streamed.abandoned, whole.abandoned) == (False, True)
    assert logged() == [("made", len(b"data: 1\n\n")), ("own", 0)]
    connection, logged = logging()
    streamed = asked(connection)
    streamed.end(b"1")
    connection.transport.close()
    assert not streamed.abandoned
    assert len(logged()) == 1


@scenario
async def test_an_answer_that_asks_for_the_end_of_the_connection_is_the_last() -> None:
    connection = Connection()
    call = asked(connection, request(b"{}", ACCEPT, b"Connection: close") + ASK)
    call.parts(b"1")
    assert not connection.transport.is_closing()
    call.end()
    await connection.settle()
    assert connection.transport.written == head(close=True) + chunk(b"1") + LAST
    assert connection.transport.is_closing()
    assert len(connection.calls) == 1


@scenario
async def test_a_stop_lets_an_answer_in_parts_end_and_closes_behind_it() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1")
    connection.lane.shutdown()
    connection.lane._close_if_idle()
    call.parts(b"2")
    assert not connection.transport.is_closing()
    call.end()
    assert connection.transport.is_closing()
    assert connection.transport.written == head() + chunk(b"1") + chunk(b"2") + LAST


@scenario
async def test_a_stop_before_the_first_part_is_in_the_head() -> None:
    connection = Connection()
    call = asked(connection)
    connection.lane.shutdown()
    call.end(b"1")
    assert connection.transport.written == head(close=True) + chunk(b"1") + LAST
    assert connection.transport.is_closing()


@scenario
async def test_a_connection_that_is_to_leave_ends_with_an_answer_that_says_so() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1")
    connection.lane.leave()
    call.end()
    # Its head has said that the connection stays, so its client may be asking already.
    assert not connection.transport.is_closing()
    asked(connection).end(b"2")
    assert connection.transport.written.endswith(LAST + head(close=True) + chunk(b"2") + LAST)
    assert connection.transport.is_closing()


@scenario
async def test_the_log_has_the_bytes_of_events() -> None:
    connection, logged = logging()
    ask = request(b"{}", ACCEPT, b"X-Request-Id: own")
    connection.feed(ask[:-1])
    call = asked(connection, ask[-1:])
    call.parts(b"1")
    call.parts(b"2", b"3")
    assert logged() == []
    call.end()
    assert logged() == [("own", 3 * len(b"data: 1\n\n"))]
    assert connection.transport.written.startswith(head().replace(b"made", b"own"))
    assert connection.lane._state is State.HEAD
    # The next request has its own begin.
    assert connection.lane._watch.began_ns == 0


@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v2/models/m/infer"])
def test_a_body_may_ask_for_events(path: str) -> None:
    @scenario
    async def test() -> None:
        connection = Connection()
        call = asked(connection, request(b'{"stream": true}', path=path.encode()))
        call.parts(b"1")
        call.end(b"2")
        assert connection.transport.written == head() + chunk(b"1") + chunk(b"2") + LAST
        # The next request of the connection is as any.
        connection.feed(request(b"{}", path=path.encode()))
        assert connection.calls[-1].in_parts is None
        assert connection.handed_over == 0

    test()


TIMING: Final = re.compile(
    rb": server-timing: [^\n]*total;dur=[0-9.]+"
    rb"(, first_part;dur=[0-9.]+)?"
    rb'(, part_gap;dur=[0-9.]+;desc="mean of (\d+)", longest_part_gap;dur=[0-9.]+)?\n\n'
)


@scenario
async def test_a_client_that_asks_gets_the_timing_behind_the_last_event() -> None:
    connection = Connection()
    call = asked(connection, request(b"{}", ACCEPT, b"X-Server-Timing: 1"))
    call.parts(b"1", b"2")
    call.parts(b"3")
    before = connection.transport.written
    call.end(b"4")
    last = connection.transport.written[len(before) :]
    data = last[last.index(b"data:") : last.rindex(LAST) - 2]
    assert last == framed(data) + LAST
    assert data.startswith(b"data: 4\n\n: server-timing: ")
    found = TIMING.fullmatch(data.removeprefix(b"data: 4\n\n"))
    assert found is not None
    assert found[3] == b"3"
    assert b"server-timing" not in before


@scenario
async def test_timing_follows_an_error_too() -> None:
    connection = Connection()
    call = asked(connection, request(b"{}", ACCEPT, b"X-Server-Timing: 1"))
    call.parts(b"1")
    call.reply(outcome(ModelFailed("broken")))
    assert b'"broken"}\n\n: server-timing: ' in connection.transport.written


@scenario
async def test_a_client_that_does_not_ask_gets_no_timing_unless_all_do() -> None:
    connection = Connection()
    call = asked(connection)
    call.parts(b"1")
    call.end()
    assert b"server-timing" not in connection.transport.written
    connection, _ = logging(server_timing=True)
    call = asked(connection)
    call.parts(b"1")
    call.end()
    assert TIMING.search(connection.transport.written) is not None
