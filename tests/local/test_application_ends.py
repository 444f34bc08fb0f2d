"""Ends of an application's answer: its client gets the same over HTTP/1.1 and HTTP/2."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import h11
import pytest
from http2_client import GET, Client, Message
from http2_harness import GREETING, headers, settings, widen
from http_harness import Connection, scenario
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.answering import ClientGone
from ringbatch.frontend.http.asgi_scope import EXCHANGES
from ringbatch.frontend.http2.frames import INTERNAL_ERROR
from ringbatch.frontend.streams.connection import MOST_STREAMS
from ringbatch.shm.errors import Draining

Raise = type[BaseException] | BaseException
Step = Message | Raise
START: Final[Message] = {"type": "http.response.start", "status": 200, "headers": []}
MORE: Final[Message] = {"type": "http.response.body", "body": b"so far", "more_body": True}
LAST: Final[Message] = {"type": "http.response.body", "body": b"body"}
INTERNAL: Final = b'{"error":"internal error"}'
SIZED: Final[Message] = START | {"headers": [(b"Content-Length", b"4")]}


class Got(NamedTuple):
    """Answer as a client receives it."""

    status: int
    body: bytes
    whole: bool


def playing(steps: Sequence[Step], *, catches: bool = False) -> Any:
    """An application that does so, one after the other."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for step in steps:
            if not isinstance(step, dict):
                raise step
            try:
                await send(dict(step))
            except Exception:
                if not catches:
                    raise

    return app


async def over_http1(app: Any, method: str = "GET") -> tuple[Got, bool]:
    """Return the answer over HTTP/1.1, and whether its head alone says that there is no body."""
    connection = Connection(served=app)
    client = h11.Connection(h11.CLIENT)
    asked = h11.Request(method=method, target="/p", headers=[("Host", "x")])
    connection.feed(client.send(asked) or b"")
    client.send(h11.EndOfMessage())
    await connection.settle()
    assert not connection.state.tasks
    transport = connection.transport
    client.receive_data(transport.written)
    if transport.closed:
        client.receive_data(b"")
    status, body, has_none = 0, b"", method == "HEAD"
    try:
        while (event := client.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                status = event.status_code
                sized = (b"content-length", b"0") in [*event.headers]
                has_none = has_none or sized or status in (204, 304)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Got(status, body, True), has_none
    except h11.RemoteProtocolError:
        pass
    assert transport.closed, "its client waits"
    return Got(status, body, False), has_none


async def over_http2(app: Any, method: str = "GET") -> Got:
    client = Client(served=app)
    answer = await client.ask(fields=((":method", method), *GET[1:]))
    assert not client.connection.state.tasks
    assert not client.connection.transport.protocol._serving
    assert not client.connection.transport.protocol.core.streams
    assert answer.ended or answer.reset == INTERNAL_ERROR, "its client waits"
    return Got(answer.status, answer.body, answer.ended)


async def over_both(app: Any, method: str = "GET") -> Got:
    (first, has_none), second = await over_http1(app, method), await over_http2(app, method)
    if has_none:
        # Over HTTP/1.1 nothing tells such an answer that broke off from a whole one.
        first = first._replace(whole=second.whole)
    assert first == second, "it depends on the protocol"
    return first


FAILED: Final = Got(500, INTERNAL, True)
BEGUN: Final = Got(200, b"so far", False)
WHOLE: Final = Got(200, b"body", True)
RAISED: Final[dict[str, Raise]] = {
    "error": ValueError,
    "cancelled": asyncio.CancelledError,
    "exit": SystemExit,
    "exit-with-status": SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator-exit": GeneratorExit,
    "group": BaseExceptionGroup("of them", [asyncio.CancelledError(), SystemExit(3)]),
    "memory": MemoryError,
    "stop": StopAsyncIteration,
}
ENDS: Final[dict[str, tuple[list[Step], Got]]] = {
    "answers": ([START, LAST], WHOLE),
    "streams": ([START, MORE, LAST], Got(200, b"so farbody", True)),
    "says-nothing": ([], FAILED),
    "begins-alone": ([START], Got(200, b"", False)),
    "stops": ([START, MORE], BEGUN),
    "no-status": ([START | {"status": 99}, LAST], FAILED),
    "informational": ([START | {"status": 101}, LAST], FAILED),
    "high-status": ([START | {"status": 600}, LAST], FAILED),
    "no-head": ([LAST], FAILED),
    "two-heads": ([START, START, LAST], Got(200, b"", False)),
    "goes-on": ([START, LAST, LAST], WHOLE),
    "too-long": ([SIZED, MORE], Got(200, b"", False)),
    "too-short": ([SIZED, LAST | {"body": b"a"}], Got(200, b"", False)),
    "chunked-itself": ([START | {"headers": [(b"Transfer-Encoding", b"chunked")]}, LAST], WHOLE),
    "two-framings": (
        [SIZED | {"headers": [*SIZED["headers"], (b"transfer-encoding", b"chunked")]}, LAST],
        WHOLE,
    ),
    "not-modified": ([SIZED | {"status": 304}, LAST], Got(304, b"", True)),
    "no-content": ([START | {"status": 204}, MORE, LAST], Got(204, b"", True)),
    "begins-empty": ([START | {"headers": [(b"Content-Length", b"0")]}], Got(200, b"", False)),
    "refused": ([Draining()], Got(503, b'{"error":"the server is stopping"}', True)),
    **{f"raises-{name}": ([act], FAILED) for name, act in RAISED.items()},
    **{f"stops-with-{name}": ([START, MORE, act], BEGUN) for name, act in RAISED.items()},
    **{f"and-then-{name}": ([START, LAST, act], WHOLE) for name, act in RAISED.items()},
}


@pytest.mark.parametrize("case", ENDS)
def test_an_application_means_the_same_over_both(case: str) -> None:
    steps, expected = ENDS[case]
    assert asyncio.run(over_both(playing(steps))) == expected


_STATUSES = st.sampled_from([200, 204, 304, 404, 500, 100, 99, 600, "200", None])
_HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"Content-Length", b"Transfer-Encoding", b"a b", b"", b":status"]),
        st.sampled_from([b"4", b"0", b"b", b" b\t", b"chunked", b"b\n", b"\0", b""]),
    ),
    max_size=2,
)
_STEPS = st.one_of(
    st.builds(lambda s, h: START | {"status": s, "headers": h}, _STATUSES, _HEADERS),
    st.builds(
        lambda body, more: {"type": "http.response.body", "body": body, "more_body": more},
        st.sampled_from([b"", b"body", b"x" * 70_000, "text", 4, None]),
        st.booleans(),
    ),
    st.sampled_from([START, MORE, LAST, *RAISED.values(), {"type": "http.response.trailers"}]),
)


@given(st.lists(_STEPS, max_size=5), st.booleans(), st.booleans(), st.sampled_from(["GET", "HEAD"]))
def test_and_so_does_any_other(steps: list[Step], begins: bool, catches: bool, method: str) -> None:
    steps = [START, *steps] if begins else steps
    disabled, logging.root.manager.disable = logging.root.manager.disable, logging.CRITICAL
    try:
        asyncio.run(over_both(playing(steps, catches=catches), method))
    finally:
        logging.root.manager.disable = disabled


@scenario
async def test_many_that_raise_use_up_no_stream() -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["path"] == "/p":
            sys.exit(3)
        await send(dict(START))
        await send(dict(LAST))

    client = Client(served=app)
    for _ in range(2 * MOST_STREAMS):
        assert (await client.ask(fields=GET)).status == 500
    health = tuple((name, "/health" if name == ":path" else text) for name, text in GET)
    assert (await client.ask(fields=health)).status == 200


Ask = Callable[[Connection], None]


def ask_http1(connection: Connection) -> None:
    connection.feed(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")


def ask_http2(connection: Connection) -> None:
    connection.feed(GREETING + settings(window=(1 << 31) - 1) + widen(0, (1 << 30)))
    connection.feed(headers(1, 1))


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_a_stream_without_a_pause_leaves_others_their_turn(ask: Ask, leaves: bool) -> None:
    """Its client takes all of it, or has left."""
    most = 1000
    sent = turns = 0
    ends: list[BaseException] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal sent
        await send(dict(START))
        try:
            while sent < most:
                await send(dict(MORE))
                sent += 1
        except BaseException as error:
            ends.append(error)
            raise

    async def run() -> None:
        nonlocal turns
        connection = Connection(served=app, http2=ask is ask_http2)
        ask(connection)
        while not sent:
            await asyncio.sleep(0)
        if leaves:
            connection.transport.abort()
        while connection.state.tasks:
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(run())
    if leaves:
        assert sent < 10
        assert [type(one) for one in ends] == [ClientGone]
    else:
        assert (sent, ends) == (most, [])
        assert turns >= most - 1


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
def test_an_application_that_listens_for_disconnects_gets_no_error(ask: Ask) -> None:
    """As Starlette listens, which then cancels what streams."""
    observed: list[str] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))

        async def stream() -> None:
            try:
                while True:
                    await send(dict(MORE))
            except BaseException as error:
                observed.append(type(error).__name__)
                raise

        streaming = asyncio.ensure_future(stream())
        while (await receive())["type"] != "http.disconnect":
            pass
        streaming.cancel()
        await asyncio.wait([streaming])
        observed.append("over")

    async def run() -> None:
        connection = Connection(served=app, http2=ask is ask_http2)
        ask(connection)
        await connection.settle()
        connection.transport.abort()
        await connection.settle()
        assert not connection.state.tasks

    asyncio.run(run())
    assert observed == ["CancelledError", "over"]


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
def test_one_that_answers_whole_after_its_client_has_left_goes_on(ask: Ask) -> None:
    """An application may go on working after its answer."""
    done: list[bool] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        while not scope[EXCHANGES].gone:
            await asyncio.sleep(0)
        await send(dict(START))
        await send(dict(LAST))
        done.append(True)

    async def run() -> None:
        connection = Connection(served=app, http2=ask is ask_http2)
        ask(connection)
        await connection.settle()
        connection.transport.abort()
        await connection.settle()

    asyncio.run(run())
    assert done == [True]


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
def test_a_task_that_the_server_cancels_ends_and_waits_for_no_client(ask: Ask) -> None:
    """As a stop does, once its time is over."""

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        await scope["state"]["may_answer"].wait()

    async def run() -> None:
        connection = Connection(served=app, http2=ask is ask_http2)
        if ask is ask_http2:
            connection.feed(GREETING + settings(window=0) + headers(1, 1))
        else:
            ask(connection)
        await connection.settle()
        (task,) = connection.state.tasks
        task.cancel()
        await connection.settle()
        assert not connection.state.tasks

    asyncio.run(run())


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("message", [START, LAST], ids=["heads", "ends"])
def test_an_unexpected_send_raises_for_any_listener(
    ask: Ask, leaves: bool, message: Message
) -> None:
    """Otherwise an application that sends without end would go on without a pause."""
    sent = 0

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        nonlocal sent
        while leaves and not scope[EXCHANGES].gone:
            await asyncio.sleep(0)
        await send(dict(START))
        for _ in range(100):
            await send(dict(message))
            sent += 1

    async def run() -> None:
        connection = Connection(served=app, http2=ask is ask_http2)
        ask(connection)
        await connection.settle()
        if leaves:
            connection.transport.abort()
            await connection.settle()
        assert not connection.state.tasks

    asyncio.run(run())
    assert sent == (message is LAST)


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
def test_an_application_that_receives_for_a_gone_client_leaves_others_their_turn(ask: Ask) -> None:
    most = 100
    turns = 0

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        for _ in range(most):
            await receive()

    async def run() -> None:
        nonlocal turns
        connection = Connection(served=app, http2=ask is ask_http2)
        ask(connection)
        await connection.settle()
        connection.transport.abort()
        while connection.state.tasks:
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(run())
    assert turns >= most - 2
