"""HTTP/2 on the port of HTTP, fed by hand: the client is the library h2, the application ours."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from http2_harness import GREETING, block, data, frame, frames_of, headers, settings, widen
from http_harness import IDLE_TIMEOUT_S, MAX_REQUEST_BYTES, Connection, request, scenario

from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fallback import EXCHANGES
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S, HEAD_TIMEOUT_S, WRITE_TIMEOUT_S
from ringbatch.frontend.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    INTERNAL_ERROR,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
)
from ringbatch.frontend.http2.outgoing import ANSWERS
from ringbatch.frontend.streams.connection import MOST_STREAMS, Http2Connection
from ringbatch.frontend.streams.served_connection import LEAVE_S

Fields = tuple[tuple[str, str], ...]
Message = dict[str, Any]
POST: Fields = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1/models/m%3Apredict?a=1"),
    (":authority", "here"),
)
GET: Fields = ((":method", "GET"), (":scheme", "http"), (":path", "/p"), (":authority", "here"))


class Answer:
    """What came on one stream."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.informed: list[str] = []
        self.body = b""
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.fields[":status"])


class Client:
    """Of one connection that a frontend serves."""

    def __init__(self, *, upgrade: bool = False, window: int | None = None, **more: Any) -> None:
        self.connection = Connection(http2=True, **more)
        config = h2.config.H2Configuration(header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.answers: dict[int, Answer] = {}
        self.left: int | None = None
        self.upgraded = upgrade
        if window is not None:
            values = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        if not upgrade:
            self.h2.initiate_connection()

    def begin(self, fields: Fields = POST, *, end: bool = False) -> int:
        number = self.h2.get_next_available_stream_id()
        self.answers[number] = Answer()
        self.h2.send_headers(number, fields, end_stream=end)
        return number

    async def send(self) -> None:
        """What the library has to say, and what follows."""
        self.connection.feed(self.h2.data_to_send())
        await self.take()

    async def take(self) -> None:
        for _ in range(3):
            await self.connection.settle()
            transport = self.connection.transport
            data, transport.written = transport.written, b""
            for event in self.h2.receive_data(data) if data else ():
                self._note(event)
            if more := self.h2.data_to_send():
                self.connection.feed(more)

    async def ask(self, body: bytes = b"", fields: Fields = POST) -> Answer:
        number = self.begin(fields, end=not body)
        await self.send()
        left = memoryview(body)
        while left:
            size = min(len(left), self.h2.local_flow_control_window(number), 1 << 14)
            assert size > 0, "there is no room"
            self.h2.send_data(number, bytes(left[:size]), end_stream=size == len(left))
            left = left[size:]
            await self.send()
        return self.answers[number]

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.left = int(event.error_code or 0)
            return
        answer = self.answers.get(getattr(event, "stream_id", 0) or 0)
        if answer is None:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            answer.informed.append(_texts(event.headers)[":status"])
        elif isinstance(event, h2.events.ResponseReceived):
            answer.fields = _texts(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.ended = True
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code)

    async def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            if not self.connection.transport.closed:
                self.connection.transport.protocol.tick()
            await self.take()


def _texts(fields: Any) -> dict[str, str]:
    return dict(fields)


def replying(status: int, *pieces: bytes, **fields: str) -> Any:
    """An application that answers so."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        lines = [(name.encode(), text.encode()) for name, text in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        for number, piece in enumerate(pieces, 1):
            more = number < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    return app


@scenario
async def test_a_request_is_the_applications_and_its_answer_the_clients() -> None:
    client = Client()
    fields = (*POST, ("cookie", "a=1"), ("cookie", "b=2"), ("content-type", "x"))
    answer = await client.ask(b"body", fields)
    assert (answer.status, answer.body, answer.ended) == (200, b"falcon", True)
    assert answer.fields["date"] == "today"
    assert client.connection.seen == [("POST /v1/models/m:predict", b"body")]
    (seen,) = client.connection.headers
    assert seen == {b"host": b"here", b"content-type": b"x", b"cookie": b"a=1; b=2"}
    assert (await client.ask(fields=GET)).status == 200
    assert client.connection.handed_over == 1


@scenario
async def test_it_may_come_byte_by_byte() -> None:
    client = Client()
    number = client.begin()
    client.h2.send_data(number, b"body", end_stream=True)
    for byte in client.h2.data_to_send():
        client.connection.feed(bytes((byte,)))
    await client.take()
    assert client.answers[number].body == b"falcon"


@scenario
async def test_a_method_that_begins_like_the_greeting_is_http_1s() -> None:
    connection = Connection(http2=True)
    for byte in b"PROPFIND / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":
        connection.feed(bytes((byte,)))
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")


@scenario
async def test_where_it_is_not_configured_the_greeting_is_a_bad_request() -> None:
    connection = Connection()
    connection.feed(PREFACE)
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 400")
    assert connection.transport.closed


@scenario
async def test_a_body_of_several_windows_and_one_without_a_length() -> None:
    client = Client()
    body = bytes(3 * MAX_REQUEST_BYTES + 1)
    assert (await client.ask(body)).status == 200
    assert client.connection.seen[0][1] == body


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
    for number in range(3, 33, 2):
        connection.feed(headers(number, END_STREAM))
        await connection.settle()
    assert len(connection.seen) == ANSWERS + 1
    # A body may take its time meanwhile, since its client may send no more of it.
    for _ in range(BODY_TIMEOUT_S + 3):
        connection.transport.protocol.tick()
        connection.feed(frame(PING, 0, 0, bytes(8)))
    connection.feed(settings(window=100))
    await connection.settle()
    assert (len(connection.seen), [*core.streams]) == (15, [1])
    connection.feed(data(1, b"body", END_STREAM))
    await connection.settle()
    assert (connection.state.tasks, core.streams, core.waiting_bytes) == (set(), {}, 0)
    said = frames_of(connection.transport.written)
    assert sum(len(one.payload) for one in said if one.kind == DATA) == 16 * len(b"falcon")


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
    "no-head": [LAST],
}
NO_BODIES: dict[str, list[Message]] = {
    "long": [{**START, "headers": [(b"content-length", b"3")]}, LAST],
    "longer": [{**START, "headers": [(b"content-length", b"7")]}, LAST | {"more_body": True}, LAST],
    "short": [{**START, "headers": [(b"content-length", b"5")]}, LAST],
    "long-again": [{**START, "headers": [(b"content-length", b"3")]}, LAST, LAST],
    "two-heads": [START, START],
}


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("case", NO_HEADS | NO_BODIES)
def test_what_is_no_answer_does_not_go_out(
    case: str, caught: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As over HTTP/1, where uvicorn sees to it."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in (NO_HEADS | NO_BODIES)[case]:
            try:
                await send(message)
            except RuntimeError:
                if not caught:
                    raise

    async def run() -> None:
        client = Client(served=app)
        answer = await client.ask(fields=GET)
        if case in NO_HEADS:
            assert (answer.status, answer.body) == (500, b"Internal Server Error")
            assert (answer.fields.get("a"), answer.ended, answer.reset) == (None, True, None)
        else:
            assert (answer.ended, answer.reset) == (False, INTERNAL_ERROR)
            assert len(answer.body) <= 4
        assert not client.connection.state.tasks

    asyncio.run(run())
    assert caught or "the application has failed" in caplog.text


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


async def _failing(_scope: Any, _receive: Any, _send: Any) -> None:
    raise KeyError("w")


async def _failing_later(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise KeyError("w")


async def _silent(_scope: Any, _receive: Any, _send: Any) -> None:
    """Returns, and has said nothing."""


@scenario
async def test_an_application_that_fails_is_500_or_the_end_of_its_stream() -> None:
    for app in (_failing, _silent):
        client = Client(served=app)
        answer = await client.ask()
        assert (answer.status, answer.body) == (500, b"Internal Server Error")
    client = Client(served=_failing_later)
    answer = await client.ask()
    assert (answer.ended, answer.reset) == (False, 2)
    assert not client.connection.transport.closed


@scenario
async def test_what_nobody_could_serve_is_refused_on_its_stream_alone() -> None:
    client = Client()
    many = tuple((f"x-{number}", "1") for number in range(300))
    for fields, status, words in (
        ((*GET, *many), 431, b"more than 256 lines"),
        ((*GET[:2], (":path", "/\u00e9"), *GET[3:]), 400, b":path must be a path"),
        ((*GET[:2], (":path", "http://x/"), *GET[3:]), 400, b":path must be a path"),
        (((":method", "GET /x HTTP/1.1"), *GET[1:]), 400, b":method must be a word"),
    ):
        answer = await client.ask(fields=fields)
        assert answer.status == status
        assert words in answer.body
        assert answer.fields["x-request-id"]
    assert (await client.ask()).status == 200
    assert [code for _, code, _ in client.connection.ended] == [431, 400, 400, 400]
    assert (
        await client.ask(fields=((":method", "OPTIONS"), GET[1], (":path", "*"), GET[3]))
    ).status


@scenario
async def test_a_body_that_stops_is_408_and_costs_the_others_nothing() -> None:
    client = Client()
    number = client.begin()
    client.h2.send_data(number, b"half")
    await client.send()
    await client.tick(BODY_TIMEOUT_S - 1)
    assert not client.answers[number].fields
    assert (await client.ask()).status == 200
    await client.tick(3)
    assert client.answers[number].status == 408
    assert b"the body did not come within 30 s" in client.answers[number].body
    assert (await client.ask()).status == 200
    bodies = [body for _, body in client.connection.seen]
    assert bodies == [b"", b"half", b""]
    assert client.answers[number].ended


@scenario
async def test_what_is_read_ahead_counts_in_the_budget() -> None:
    budget = BodyBudget(100_000)
    client = Client(budget=budget, served=_stuck)
    numbers = [client.begin() for _ in range(3)]
    for number in numbers:
        for _ in range(3):
            client.h2.send_data(number, bytes(16_000))
        await client.send()
    statuses = [client.answers[number].fields.get(":status") for number in numbers]
    assert statuses == [None, None, "503"]
    for number in numbers[:2]:
        client.h2.reset_stream(number)
    await client.send()
    budget.take(100_000)


@scenario
async def test_what_is_read_is_not_held_any_more() -> None:
    client = Client(budget=BodyBudget(100_000))
    assert (await client.ask(bytes(400_000))).status == 200


async def _stuck(scope: Any, _receive: Any, _send: Any) -> None:
    """Reads nothing, until its client has gone."""
    exchange = Gone()
    scope[EXCHANGES].add(exchange)
    await exchange.event.wait()


class Gone:
    """An exchange."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def gone(self) -> None:
        self.event.set()


class Read(list[bytes]):
    """Pieces of a body; counts how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[bytes]:
        self.times += 1
        return super().__iter__()


@scenario
async def test_what_lies_there_is_not_gone_through_for_every_piece() -> None:
    connection = Connection(http2=True, served=_stuck)
    connection.feed(GREETING + headers(1))
    await connection.settle()
    stream = connection.transport.protocol.core.streams[1]
    pieces = stream.pieces = Read()
    for _ in range(50):
        connection.feed(data(1, bytes(33)))
    assert (len(pieces), pieces.times) == (50, 0)
    connection.transport.abort()
    await connection.settle()


@scenario
async def test_whoever_serves_learns_that_its_client_has_gone() -> None:
    client = Client(served=_stuck)
    number = client.begin(end=True)
    await client.send()
    assert len(client.connection.state.tasks) == 1
    client.h2.reset_stream(number)
    await client.send()
    assert not client.connection.state.tasks
    client.begin(end=True)
    await client.send()
    client.connection.transport.abort()
    await client.connection.settle()
    assert not client.connection.state.tasks
    assert not client.connection.state.connections


async def _listening(_scope: Any, receive: Any, send: Any) -> None:
    """Waits for the end of its client while it answers, as Starlette does."""

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def answer() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(100), "more_body": False})

    await asyncio.gather(until_gone(), answer())


@pytest.mark.parametrize("first", ["taken", "left", "unfinished"])
def test_whoever_listens_while_it_answers_hears_of_the_end(first: str) -> None:
    async def run() -> None:
        connection = Connection(http2=True, served=_listening)
        connection.feed(PREFACE + settings(window=1) + headers(1, END_STREAM))
        await connection.settle()
        assert len(connection.state.tasks) == 1
        if first == "left":
            connection.feed(frame(RST_STREAM, 0, 1, bytes(4)))
        else:
            connection.feed(widen(1, 100))
        await connection.settle()
        assert not connection.state.tasks
        # Where nothing has to wait, and where the body has yet to end.
        connection.feed(settings(window=100) + headers(3, 0 if first == "unfinished" else 1))
        await connection.settle()
        assert not connection.state.tasks

    asyncio.run(run())


async def _early(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers before it has seen anything of the body."""
    await send({"type": "http.response.start", "status": 413, "headers": []})
    await send({"type": "http.response.body", "body": b"too much"})


@scenario
async def test_the_end_of_an_early_answer_waits_for_that_of_the_body() -> None:
    client = Client(served=_early)
    answer = await client.ask(bytes(5 << 20))
    assert (answer.status, answer.body, answer.ended, answer.reset) == (
        413,
        b"too much",
        True,
        None,
    )
    assert not client.connection.state.tasks


@scenario
async def test_but_not_for_ever() -> None:
    client = Client(served=_early)
    number = client.begin()
    await client.send()
    answer = client.answers[number]
    assert (answer.status, answer.body, answer.ended) == (413, b"too much", False)
    for _ in range(BODY_TIMEOUT_S + 2):
        await client.tick(1)
        if not answer.ended:
            client.h2.send_data(number, bytes(1000))
            await client.send()
    assert (answer.ended, answer.reset) == (True, 0)
    assert (await client.ask(fields=GET)).status == 413


@scenario
async def test_a_stop_does_not_wait_for_the_rest_of_what_is_answered() -> None:
    client = Client(served=_early)
    client.begin()
    await client.send()
    client.connection.transport.protocol.shutdown()
    await asyncio.sleep(LEAVE_S + 0.1)
    assert client.connection.transport.closed


@scenario
async def test_who_goes_before_the_rest_has_come_leaves_nothing() -> None:
    client = Client(served=_early)
    number = client.begin()
    await client.send()
    protocol = client.connection.transport.protocol
    assert protocol._serving
    client.h2.reset_stream(number)
    await client.send()
    assert not protocol._serving


@scenario
async def test_a_body_of_a_known_length_is_whole_before_its_end_has_come() -> None:
    client = Client()
    number = client.begin((*POST, ("content-length", "4")))
    client.h2.send_data(number, b"body")
    await client.send()
    answer = client.answers[number]
    assert (answer.body, answer.ended) == (b"falcon", False)
    client.h2.end_stream(number)
    await client.send()
    assert (answer.ended, answer.reset) == (True, None)


@scenario
async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked() -> None:
    client = Client()
    number = client.begin((*POST, ("expect", "100-continue")))
    await client.send()
    answer = client.answers[number]
    assert answer.informed == ["100"]
    client.h2.send_data(number, b"body", end_stream=True)
    await client.send()
    assert answer.body == b"falcon"


def upgrading(*lines: bytes, settings: bytes = b"") -> bytes:
    """A request over HTTP/1.1 that would rather go on over HTTP/2."""
    text = base64.urlsafe_b64encode(settings).rstrip(b"=")
    return b"\r\n".join(
        [
            b"GET /p HTTP/1.1",
            b"Host: here",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: " + text,
            *lines,
            b"",
            b"",
        ]
    )


@scenario
async def test_a_request_that_asks_for_h2c_is_answered_over_http_2() -> None:
    client = Client(upgrade=True)
    settings = client.h2.initiate_upgrade_connection()
    assert isinstance(settings, bytes)
    client.answers[1] = Answer()
    head = upgrading(b"X-Own: 1").replace(b"HTTP2-Settings: ", b"HTTP2-Settings: " + settings, 1)
    client.connection.feed(head)
    await client.connection.settle()
    switching, _, rest = client.connection.transport.written.partition(b"\r\n\r\n")
    assert switching == (b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c")
    client.connection.transport.written = rest
    await client.send()
    assert client.answers[1].body == b"falcon"
    assert client.connection.headers == [{b"host": b"here", b"x-own": b"1"}]
    assert (await client.ask(b"more")).status == 200


@pytest.mark.parametrize(
    "data",
    [
        upgrading(b"Content-Length: 2") + b"{}",
        upgrading(b"HTTP2-Settings: AAAA"),
        upgrading(settings=b"12345"),
        upgrading().replace(b"Upgrade, HTTP2", b"HTTP2"),
        upgrading().replace(b"h2c", b"h3"),
        upgrading().replace(b"h2c\r\nHTTP2-Settings: ", b"h2c\r\nHTTP2-Settings: !!"),
    ],
)
def test_a_wish_that_is_not_beyond_doubt_is_passed_over(data: bytes) -> None:
    async def run() -> None:
        connection = Connection(http2=True)
        connection.feed(data)
        await connection.settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 200"), (
            connection.transport.written
        )

    asyncio.run(run())


@scenario
async def test_a_wish_without_a_sound_host_is_refused_as_over_http_1() -> None:
    connection = Connection(http2=True)
    two = upgrading().replace(b"Host: here\r\n", b"Host: here\r\nHost: there\r\n")
    connection.feed(two)
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 400")


@scenario
async def test_over_tls_nobody_asks_for_h2c() -> None:
    connection = Connection(http2=True)
    connection.transport.extra["sslcontext"] = object()
    connection.feed(upgrading())
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")


@scenario
async def test_settings_of_a_wish_that_are_wrong_end_the_connection() -> None:
    connection = Connection(http2=True)
    connection.feed(upgrading(settings=b"\0\4\xff\xff\xff\xff"))
    await connection.settle()
    assert b"101 Switching" in connection.transport.written
    assert connection.transport.closed
    assert not connection.seen


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid-resets": lambda n: headers(2 * n + 1) + frame(RST_STREAM, 0, 2 * n + 1, bytes(4)),
    "pings": lambda _n: frame(PING, 0, 0, bytes(8)),
    "settings": lambda _n: frame(SETTINGS, 0, 0),
    "empty-pieces": lambda n: headers(1) if not n else frame(0, 0, 1),
    "long-heads": lambda n: headers(2 * n + 1, END_STREAM, block(*[(b"a", b"b")] * 1500)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_its_connection_and_leaves_nothing(flood: str) -> None:
    async def run() -> None:
        connection = Connection(http2=True, served=_stuck)
        connection.feed(GREETING)
        most = sent = 0
        while not connection.transport.closed:
            assert sent < 30_000, "it goes on for ever"
            connection.feed(FLOODS[flood](sent))
            sent += 1
            if not sent % 100:
                await connection.settle()
                most = max(most, len(connection.state.tasks))
        await connection.settle()
        assert ENHANCE_YOUR_CALM.to_bytes(4, "big") in connection.transport.written[-200:]
        assert most <= MOST_STREAMS
        assert not connection.state.tasks

    asyncio.run(run())


@scenario
async def test_a_header_block_without_an_end_ends_its_connection() -> None:
    connection = Connection(http2=True)
    connection.feed(GREETING + frame(HEADERS, 0, 1, block()))
    for _ in range(64):
        connection.feed(frame(CONTINUATION, 0, 1, b"\0\1a\1b"))
    assert connection.transport.closed
    assert ENHANCE_YOUR_CALM.to_bytes(4, "big") in connection.transport.written


def long_heads(count: int) -> bytes:
    """Heads of which five are read at once."""
    numbers = range(1, 2 * count, 2)
    many = [(b"a", b"b")] * 200
    return b"".join(headers(n, END_STREAM, block(*many, (b"n", b"%d" % n))) for n in numbers)


def seen(transport: Any) -> tuple[int, bool]:
    """How many streams there are, and whether anything more is read."""
    return len(transport.protocol.core.streams), transport.reading


@scenario
async def test_long_heads_are_read_in_turns_and_meanwhile_nothing_else_is() -> None:
    connection = Connection(http2=True, served=_stuck)
    transport = connection.transport
    connection.feed(GREETING + long_heads(20))
    assert seen(transport) == (5, False)
    await connection.settle()
    assert seen(transport) == (20, True)
    transport.abort()
    await connection.settle()


@scenario
async def test_who_takes_no_answers_is_read_no_further_once_all_heads_are_read() -> None:
    connection = Connection(http2=True, served=_stuck)
    transport = connection.transport
    connection.feed(GREETING + long_heads(20))
    transport.protocol.pause_writing()
    await connection.settle()
    assert seen(transport) == (20, False)
    transport.protocol.resume_writing()
    assert seen(transport) == (20, True)
    connection.feed(long_heads(40)[len(long_heads(20)) :])
    transport.protocol.pause_writing()
    transport.protocol.resume_writing()
    assert seen(transport) == (25, False), "heads are there that are not read"
    await connection.settle()
    assert seen(transport) == (40, True)
    transport.abort()
    await connection.settle()


@scenario
async def test_who_leaves_behind_long_heads_is_gone() -> None:
    connection = Connection(http2=True)
    connection.feed(GREETING + long_heads(20))
    connection.transport.abort()
    await connection.settle()
    assert not connection.state.tasks


@scenario
async def test_no_more_streams_are_served_at_once_than_are_allowed() -> None:
    connection = Connection(http2=True, served=_stuck)
    connection.feed(GREETING)
    for number in range(MOST_STREAMS + 3):
        connection.feed(headers(2 * number + 1, 1))
    await connection.settle()
    assert len(connection.state.tasks) == MOST_STREAMS
    connection.transport.abort()
    await connection.settle()


@scenario
async def test_a_stop_serves_what_has_begun() -> None:
    client = Client()
    number = client.begin()
    await client.send()
    transport = client.connection.transport
    transport.protocol.leave()
    transport.protocol.shutdown()
    # The library takes GOAWAY for the end of all streams, so it has no more to say.
    goaway, ping = frames_of(transport.written)
    assert (goaway.kind, int.from_bytes(goaway.payload[4:8], "big")) == (GOAWAY, 0)
    client.connection.feed(frame(PING, ACK, 0, ping.payload))
    client.connection.feed(data(number, b"body", END_STREAM) + headers(number + 2, END_STREAM))
    await client.connection.settle()
    assert b"falcon" in transport.written
    assert [body for _, body in client.connection.seen] == [b"body"]
    assert transport.closed


@scenario
async def test_a_stop_does_not_wait_for_a_client_that_says_nothing() -> None:
    client = Client()
    await client.ask()
    protocol = client.connection.transport.protocol
    protocol.shutdown()
    assert not client.connection.transport.closed
    await asyncio.sleep(LEAVE_S + 0.1)
    assert client.connection.transport.closed


@scenario
async def test_nothing_is_written_to_a_connection_that_is_closed() -> None:
    client = Client()
    await client.ask()
    transport = client.connection.transport
    transport.protocol.shutdown()
    (ping,) = [each for each in frames_of(transport.written) if each.kind == PING]
    # Its client is still taking the last answer.
    transport.left_bytes = 1
    client.connection.feed(frame(PING, ACK, 0, ping.payload))
    assert transport.closing
    transport.written = b""
    transport.protocol.data_received(frame(PING, 0, 0, bytes(8)))
    assert transport.written == b""


def ends_after(seconds: int) -> Callable[[Connection], Awaitable[None]]:
    async def play(connection: Connection) -> None:
        for _ in range(seconds - 1):
            connection.transport.protocol.tick()
            await connection.settle()
        assert not connection.transport.closed
        for _ in range(3):
            if not connection.transport.closed:
                connection.transport.protocol.tick()
        assert connection.transport.closed

    return play


@scenario
async def test_half_a_greeting_and_half_a_frame_end() -> None:
    for given in (PREFACE[:-3], GREETING + headers(1)[:-3]):
        connection = Connection(http2=True)
        connection.feed(given)
        await ends_after(HEAD_TIMEOUT_S)(connection)


@scenario
async def test_an_idle_connection_ends() -> None:
    client = Client()
    await client.ask()
    await ends_after(IDLE_TIMEOUT_S)(client.connection)


@scenario
async def test_a_client_that_takes_nothing_ends() -> None:
    connection = Connection(http2=True, served=replying(200, bytes(30_000)))
    connection.feed(GREETING + headers(1, 1))
    await connection.settle()
    connection.transport.left_bytes = 1 << 20
    connection.transport.protocol.pause_writing()
    await ends_after(WRITE_TIMEOUT_S)(connection)


@scenario
async def test_a_stream_that_takes_nothing_ends_alone() -> None:
    client = Client(served=replying(200, bytes(30_000)), window=100)
    number = client.begin(end=True)
    client.connection.feed(client.h2.data_to_send())
    await client.connection.settle()
    for _ in range(WRITE_TIMEOUT_S + 3):
        client.connection.transport.protocol.tick()
        # Otherwise nobody would be there.
        client.connection.feed(frame(PING, 0, 0, bytes(8)))
        await client.connection.settle()
    assert not client.connection.state.tasks
    assert client.connection.transport.protocol._serving == {}
    assert not client.connection.transport.closed
    await client.take()
    assert client.answers[number].reset == 8


@scenario
async def test_what_is_no_http_2_behind_the_greeting_ends_with_the_reason() -> None:
    connection = Connection(http2=True)
    connection.feed(PREFACE + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await connection.settle()
    assert connection.transport.closed
    assert b"a frame has" in connection.transport.written


@scenario
async def test_a_kept_connection_of_http_1_stays_one() -> None:
    connection = Connection(http2=True, at_once=True)
    connection.feed(request(b"{}"))
    await connection.settle()
    assert connection.transport.written.startswith(b"HTTP/1.1 200")
