"""An answer over HTTP/2: its head, its windows, what is none, one that comes before the body."""

import asyncio
from typing import Any

import pytest
from http2_client import GET, Client, Message, replying, stuck
from http2_harness import block, data, frame, frames_of, headers, settings, widen
from http_harness import Connection, scenario

from ringbatch.frontend.http.asgi_scope import FORMS, OUTLET
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S
from ringbatch.frontend.http2.frames import (
    CANCEL,
    DATA,
    END_STREAM,
    INTERNAL_ERROR,
    PING,
    PREFACE,
)
from ringbatch.frontend.http2.outgoing import ANSWERS
from ringbatch.frontend.streams.connection import AT_ONCE, MOST_STREAMS, Http2Connection
from ringbatch.frontend.streams.served_connection import LEAVE_S


@scenario
async def test_an_answer_waits_for_the_clients_windows() -> None:
    pieces = [bytes((number,)) * 40_000 for number in range(5)]
    client = Client(served=replying(200, *pieces), window=1000)
    answer = await client.ask()
    for _ in range(300):
        await client.take()
    assert answer.ended
    assert answer.body == b"".join(pieces)


def test_answers_are_looked_at_only_where_something_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    usual = Http2Connection._look_for_room

    def counted(connection: Http2Connection) -> None:
        nonlocal looks
        looks += 1
        usual(connection)

    async def run() -> None:
        nonlocal looks
        connection = Connection(http2=True, served=replying(200, bytes(40), bytes(40)))
        connection.feed(PREFACE + settings(window=10) + headers(1, 1))
        await connection.settle()
        looks = 0
        connection.feed(frame(PING, 0, 0, bytes(8)))
        assert looks == 0
        connection.feed(widen(1, 30))
        assert looks == 1
        connection.feed(widen(1, 40))
        await connection.settle()
        assert frames_of(connection.transport.written)[-1].flags == END_STREAM

    monkeypatch.setattr(Http2Connection, "_look_for_room", counted)
    asyncio.run(run())


@scenario
async def test_while_answers_wait_for_their_client_no_more_is_begun() -> None:
    connection = Connection(http2=True)
    connection.feed(PREFACE + settings(window=0) + headers(1))
    core = connection.transport.protocol.core
    core.most_waiting_bytes = 1
    connection.transport.protocol._answer_bytes = 0
    for number in range(3, 33, 2):
        connection.feed(headers(number, END_STREAM))
        await connection.settle()
    assert len(connection.seen) == ANSWERS
    # A body may take its time meanwhile, since its client may send no more of it.
    for _ in range(BODY_TIMEOUT_S + 3):
        connection.transport.protocol.tick()
        connection.feed(frame(PING, 0, 0, bytes(8)))
        await connection.settle()
    connection.feed(settings(window=100))
    await connection.settle()
    assert (len(connection.seen), [*core.streams]) == (15, [1])
    connection.feed(data(1, b"body", END_STREAM))
    await connection.settle()
    assert (connection.state.tasks, core.streams, core.waiting_bytes) == (set(), {}, 0)
    sent_frames = frames_of(connection.transport.written)
    assert sum(len(one.payload) for one in sent_frames if one.kind == DATA) == 16 * len(b"falcon")


@scenario
async def test_streams_that_come_at_once_begin_in_several_turns_of_the_loop() -> None:
    begun = 0

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await send(START)
        await send(LAST)

    connection = Connection(http2=True, served=app)
    count = MOST_STREAMS // 2
    connection.feed(PREFACE + settings())
    connection.feed(b"".join(headers(2 * number + 1, END_STREAM) for number in range(count)))
    most, before = 0, 0
    while before < count:
        await asyncio.sleep(0)
        most, before = max(most, begun - before), begun
    assert 0 < most <= AT_ONCE
    await connection.settle()
    assert not connection.transport.protocol.core.streams


@scenario
async def test_answers_in_pieces_keep_others_from_beginning_until_their_first_piece() -> None:
    begun, release = 0, asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await send(START)
        await send(LAST | {"body": b"a part", "more_body": True})
        await release.wait()
        await send(LAST)

    connection = Connection(http2=True, served=app)
    count = MOST_STREAMS // 2
    connection.feed(PREFACE + settings())
    connection.feed(b"".join(headers(2 * number + 1, END_STREAM) for number in range(count)))
    # No second passes, and no answer ends.
    for _ in range(count):
        await connection.settle()
    assert begun == count
    release.set()
    await connection.settle()
    assert not connection.transport.protocol.core.streams


@scenario
async def test_requests_that_are_refused_keep_no_others_from_beginning() -> None:
    connection = Connection(http2=True)
    refused = block(fields=((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"*")))
    count = MOST_STREAMS // 2
    connection.feed(PREFACE + settings())
    for number in range(count):
        connection.feed(headers(2 * number + 1, END_STREAM, refused))
        # No second passes.
        await connection.settle()
    assert len(connection.ended) == count


LARGE_BYTES = 1 << 20


@scenario
async def test_large_answers_to_many_that_begin_at_once_wait_in_bounds() -> None:
    made = 0

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal made
        made += 1
        await send(START)
        await send(LAST | {"body": bytes(LARGE_BYTES)})

    connection = Connection(http2=True, served=app)
    numbers = range(1, 201, 2)
    connection.feed(PREFACE + settings(window=0))
    connection.feed(b"".join(headers(number, END_STREAM) for number in numbers))
    protocol = connection.transport.protocol
    for _ in range(5):
        await connection.settle()
        protocol.tick()
        connection.feed(frame(PING, 0, 0, bytes(8)))
    assert made <= (1 << 24) // LARGE_BYTES + 1
    assert protocol.core.waiting_bytes == made * LARGE_BYTES
    connection.feed(settings(window=LARGE_BYTES) + widen(0, 200 * LARGE_BYTES))
    for _ in numbers:
        await connection.settle()
    assert (made, protocol.core.streams, protocol.core.waiting_bytes) == (len(numbers), {}, 0)


@scenario
async def test_small_answers_to_many_that_begin_at_once_wait_for_no_second() -> None:
    connection = Connection(http2=True)
    connection.feed(PREFACE + settings())
    connection.feed(b"".join(headers(number, END_STREAM) for number in range(1, 256, 2)))
    for _ in range(10):
        await connection.settle()
    assert len(connection.seen) == MOST_STREAMS


@scenario
async def test_applications_that_wait_are_begun_all_the_same() -> None:
    """Each may wait for what another of the connection does."""
    connection = Connection(http2=True, served=stuck)
    connection.feed(PREFACE + settings())
    connection.feed(b"".join(headers(number, END_STREAM) for number in range(1, 256, 2)))
    await connection.settle()
    assert len(connection.state.tasks) < MOST_STREAMS
    for _ in range(10):
        connection.transport.protocol.tick()
        await connection.settle()
    assert len(connection.state.tasks) == MOST_STREAMS
    connection.transport.abort()
    await connection.settle()


@scenario
async def test_answers_without_a_body_have_none() -> None:
    for status, method in ((204, "GET"), (304, "GET"), (200, "HEAD")):
        client = Client(served=replying(status, b"not for you"))
        fields = ((":method", method), *GET[1:])
        answer = await client.ask(fields=fields)
        assert (answer.status, answer.body, answer.ended) == (status, b"", True)


@scenario
async def test_a_head_of_many_kilobytes_is_sent_in_pieces() -> None:
    client = Client(served=replying(200, b"x", long="y" * 60_000, connection="close"))
    answer = await client.ask()
    assert answer.fields["long"] == "y" * 60_000
    assert "connection" not in answer.fields


INTERNAL = b'{"error":"internal error"}'
START: Message = {"type": "http.response.start", "status": 200}
LAST: Message = {"type": "http.response.body", "body": b"body"}
NO_HEADS: dict[str, list[Message]] = {
    "value-lf": [{**START, "headers": [(b"a", b"b\nc: d")]}, LAST],
    "value-cr": [{**START, "headers": [(b"a", b"b\r")]}, LAST],
    "value-nul": [{**START, "headers": [(b"a", b"\0")]}, LAST],
    "value-control": [{**START, "headers": [(b"a", b"\x07")]}, LAST],
    "name-lf": [{**START, "headers": [(b"a\n", b"b")]}, LAST],
    "name-none": [{**START, "headers": [(b"", b"b")]}, LAST],
    "name-pseudo": [{**START, "headers": [(b":status", b"201")]}, LAST],
    "length-word": [{**START, "headers": [(b"content-length", b"four")]}, LAST],
    "length-below-0": [{**START, "headers": [(b"content-length", b"-1")]}, LAST],
    "lengths": [{**START, "headers": [(b"content-length", b"4"), (b"Content-Length", b"5")]}, LAST],
    "name-text": [{**START, "headers": [("a", "b")]}, LAST],
    "status-none": [{**START, "status": 0}, LAST],
    "status-informational": [{**START, "status": 103}, LAST],
    "status-below": [{**START, "status": 199}, LAST],
    "status-above": [{**START, "status": 600}, LAST],
    "status-text": [{**START, "status": "200"}, LAST],
    "no-head": [LAST],
}
NO_BODIES: dict[str, list[Message]] = {
    "long": [{**START, "headers": [(b"content-length", b"3")]}, LAST],
    "longer": [{**START, "headers": [(b"content-length", b"7")]}, LAST | {"more_body": True}, LAST],
    "short": [{**START, "headers": [(b"content-length", b"5")]}, LAST],
    "long-again": [{**START, "headers": [(b"content-length", b"3")]}, LAST, LAST],
    "two-heads": [START, START],
    "text": [START, LAST | {"body": "text"}],
    "number": [START, LAST | {"body": 5}],
}


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("case", NO_HEADS | NO_BODIES)
def test_an_invalid_answer_does_not_go_out(
    case: str, caught: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As over HTTP/1, where uvicorn sees to it."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in (NO_HEADS | NO_BODIES)[case]:
            try:
                await send(message)
            except (RuntimeError, TypeError, AttributeError):
                if not caught:
                    raise

    async def run() -> None:
        client = Client(served=app)
        answer = await client.ask(fields=GET)
        if case in NO_HEADS:
            assert (answer.status, answer.body) == (500, INTERNAL)
            assert (answer.fields.get("a"), answer.ended, answer.reset) == (None, True, None)
        else:
            assert (answer.ended, answer.reset) == (False, INTERNAL_ERROR)
            assert len(answer.body) <= 4
        assert not client.connection.state.tasks

    asyncio.run(run())
    assert caught or "frontend: GET /p failed" in caplog.text


@scenario
async def test_an_answer_without_a_body_may_tell_the_length_of_one() -> None:
    client = Client(served=replying(200, b"", **{"content-length": "5"}))
    answer = await client.ask(fields=((":method", "HEAD"), *GET[1:]))
    assert (answer.fields["content-length"], answer.ended) == ("5", True)


@scenario
async def test_blanks_around_a_value_are_no_part_of_it() -> None:
    client = Client(served=replying(200, b"abc", blank=" a b\t", **{"content-length": "3"}))
    answer = await client.ask(fields=GET)
    assert (answer.fields["blank"], answer.body, answer.ended) == ("a b", b"abc", True)


@scenario
async def test_a_piece_goes_out_at_once_unless_others_wait() -> None:
    written: list[bool] = []
    begun, gate = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        write = scope[OUTLET].send
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"0", "more_body": True})
        # With what was sent before it would go out in any case.
        await begun.wait()
        written.extend(write(piece) for piece in (b"1", b"23", b"no"))
        await gate.wait()
        await send({"type": "http.response.body", "body": b"4", "more_body": False})
        written.append(write(b"no"))

    client = Client(served=app, window=2)
    number = client.begin(end=True)
    client.connection.feed(client.h2.data_to_send())
    await client.connection.settle()
    begun.set()
    await client.connection.settle()
    assert written == [True, True, False]
    assert client.connection.transport.written.endswith(b"1"), "there is room for no more"
    await client.take()
    answer = client.answers[number]
    assert (answer.body, answer.ended) == (b"0123", False)
    gate.set()
    await client.take()
    assert (answer.body, answer.ended) == (b"01234", True)
    assert written == [True, True, False, False]
    assert not client.connection.transport.protocol.core.streams


@scenario
async def test_the_forms_of_parts_last_as_long_as_their_connection() -> None:
    found: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        found.append(scope[FORMS])
        await replying(200, b"")(scope, _receive, send)

    client = Client(served=app)
    for _ in range(2):
        await client.ask()
    assert found[0] is found[1]
    found[0]["form"] = 1
    client.connection.transport.protocol.connection_lost(None)
    assert not found[0]


async def _failing(_scope: Any, _receive: Any, _send: Any) -> None:
    raise KeyError("w")


async def _failing_later(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise KeyError("w")


async def _silent(_scope: Any, _receive: Any, _send: Any) -> None:
    """Return without an answer."""


@scenario
async def test_an_application_that_fails_is_500_or_the_end_of_its_stream() -> None:
    for app in (_failing, _silent):
        client = Client(served=app)
        answer = await client.ask()
        assert (answer.status, answer.body) == (500, INTERNAL)
    client = Client(served=_failing_later)
    answer = await client.ask()
    assert (answer.ended, answer.reset) == (False, 2)
    assert not client.connection.transport.closed


async def _early(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer before anything of the body is read."""
    await send({"type": "http.response.start", "status": 413, "headers": []})
    await send({"type": "http.response.body", "body": b"too much"})


@scenario
async def test_an_early_answer_is_whole_at_once_and_the_body_is_dropped() -> None:
    client = Client(served=_early)
    number = client.begin()
    await client.send()
    answer = client.answers[number]
    assert (answer.status, answer.body, answer.ended) == (413, b"too much", True)
    assert answer.reset is None, "a client may take that for a failure of what it sends"
    for _ in range(5 << 6):
        assert client.h2.local_flow_control_window(number) >= 1 << 14, "it may send on"
        client.h2.send_data(number, bytes(1 << 14))
        await client.send()
    client.h2.end_stream(number)
    await client.send()
    assert answer.reset is None
    assert not client.connection.state.tasks
    assert not client.connection.transport.protocol.core.streams


@scenario
async def test_but_not_for_ever() -> None:
    client = Client(served=_early)
    number = client.begin()
    await client.send()
    answer = client.answers[number]
    for _ in range(BODY_TIMEOUT_S + 2):
        await client.tick(1)
        if answer.reset is None:
            client.h2.send_data(number, bytes(1000))
            await client.send()
    assert answer.reset == 0
    assert (await client.ask(fields=GET)).status == 413


@scenario
async def test_a_body_that_stops_ends_its_stream_also_where_the_answer_has_begun() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"so far", "more_body": True})
        while (await receive())["type"] == "http.request":
            pass

    client = Client(served=app)
    number = client.begin()
    client.h2.send_data(number, b"more")
    await client.send()
    for _ in range(BODY_TIMEOUT_S):
        await client.tick(1)
    answer = client.answers[number]
    assert (answer.body, answer.reset) == (b"so far", None)
    await client.tick(2)
    assert answer.reset == CANCEL
    assert not client.connection.state.tasks


@scenario
async def test_a_stop_does_not_wait_for_the_rest_of_an_answered_body() -> None:
    client = Client(served=_early)
    client.begin()
    await client.send()
    client.connection.transport.protocol.shutdown()
    await asyncio.sleep(LEAVE_S + 0.1)
    assert client.connection.transport.closed


@scenario
async def test_a_client_that_goes_before_the_rest_has_come_leaves_nothing() -> None:
    client = Client(served=_early)
    number = client.begin()
    await client.send()
    protocol = client.connection.transport.protocol
    assert protocol._serving
    client.h2.reset_stream(number)
    await client.send()
    assert not protocol._serving
