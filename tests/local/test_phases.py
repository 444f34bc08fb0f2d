"""Phases of a connection, on both of its kinds: each is recognised, and it ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from http_harness import (
    ESCAPED,
    IDLE_TIMEOUT_S,
    UNREAD,
    WAITS,
    Connection,
    request,
    scenario,
    uvicorn_config,
)

from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S, LEAST_RECEIVED_BYTES, LIMITS, Phase

Enter = Callable[[Connection], Awaitable[None]]
FOREIGN = request(b"{}", path=ESCAPED)
CHUNKED = FOREIGN.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]
WAITING = request(b"{}", path=WAITS.encode())


def sent(*pieces: bytes, at_once: bool = True) -> Enter:
    """A client that sends that, and nothing more."""

    async def enter(connection: Connection) -> None:
        connection.at_once = at_once
        for piece in pieces:
            connection.feed(piece)
            await connection.settle()

    return enter


def deaf(*pieces: bytes) -> Enter:
    """Send the pieces over a connection whose client reads no answer."""

    async def enter(connection: Connection) -> None:
        connection.transport.left_bytes = 1 << 20
        await sent(*pieces)(connection)
        connection.transport.protocol.pause_writing()

    return enter


async def at_the_control_address(connection: Connection) -> None:
    """Move the connection to the control address, which has no fast lane before it."""
    protocol = FallbackProtocol(uvicorn_config(), connection.state, {}, asyncio.get_running_loop())
    connection.transport.protocol = protocol
    protocol.connection_made(connection.transport)


FAST: dict[str, tuple[Phase, Enter]] = {
    "nothing": (Phase.IDLE, sent()),
    "answered": (Phase.IDLE, sent(request(b"{}"))),
    "first-byte": (Phase.HEAD, sent(b"P")),
    "half-a-head": (Phase.HEAD, sent(request(b"{}")[:-5])),
    "half-a-head-behind-an-answer": (Phase.HEAD, sent(request(b"{}") + request(b"")[:-1])),
    "half-a-body": (Phase.BODY, sent(request(b"{}")[:-1])),
    "half-a-body-behind-an-answer": (Phase.BODY, sent(request(b"{}"), request(b"{}")[:-1])),
    "in-the-engine": (Phase.ANSWER, sent(request(b"{}"), at_once=False)),
    "in-the-engine-with-more": (Phase.ANSWER, sent(request(b"{}") * 2, at_once=False)),
    "deaf": (Phase.TAKING, deaf(request(b"{}"))),
    "deaf-and-closing": (Phase.TAKING, deaf(request(b"{}", b"Connection: close"))),
}
SLOW: dict[str, tuple[Phase, Enter]] = {
    "nothing": (Phase.IDLE, at_the_control_address),
    "empty-line": (Phase.IDLE, sent(b"\r\n")),
    "empty-line-behind-an-answer": (Phase.IDLE, sent(FOREIGN, b"\r\n")),
    "empty-line-behind-a-fast-answer": (Phase.IDLE, sent(request(b"{}"), b"\r\n")),
    "answered": (Phase.IDLE, sent(FOREIGN)),
    "first-byte": (Phase.HEAD, sent(b"G")),
    "half-a-head": (Phase.HEAD, sent(b"GET / HTTP/1.1\r\nA: ")),
    "half-a-head-behind-an-answer": (Phase.HEAD, sent(FOREIGN + FOREIGN[:-5])),
    "half-a-body": (Phase.BODY, sent(FOREIGN[:-1])),
    "half-a-body-behind-an-answer": (Phase.BODY, sent(FOREIGN, FOREIGN[:-1])),
    "half-a-line-of-a-chunk": (Phase.BODY, sent(CHUNKED + b"2;a=b")),
    "half-the-trailers": (Phase.BODY, sent(CHUNKED + b"0\r\na: b\r\n")),
    "a-body-for-nobody": (Phase.UNWANTED, sent(request(b"{}", path=UNREAD.encode())[:-1])),
    "in-falcon": (Phase.ANSWER, sent(WAITING)),
    "in-falcon-with-half-a-head": (Phase.ANSWER, sent(WAITING, WAITING + WAITING[:9])),
    "in-falcon-with-half-a-body": (Phase.ANSWER, sent(WAITING, WAITING[:-1])),
    "deaf": (Phase.TAKING, deaf(FOREIGN)),
    "deaf-and-refused": (Phase.TAKING, deaf(b"nonsense\r\n\r\n")),
}
CASES = [
    *(pytest.param(False, *case, id=f"fast-{name}") for name, case in FAST.items()),
    *(pytest.param(True, *case, id=f"falcon-{name}") for name, case in SLOW.items()),
]


def test_there_is_a_case_for_every_phase_on_both_kinds_of_connection() -> None:
    assert {phase for phase, _ in SLOW.values()} == set(Phase)
    # A request that the fast lane takes has come whole before it is answered.
    assert {phase for phase, _ in FAST.values()} == set(Phase) - {Phase.UNWANTED}


@pytest.mark.parametrize(("falcon", "phase", "enter"), CASES)
def test_a_connection_ends_in_any_phase(falcon: bool, phase: Phase, enter: Enter) -> None:
    async def test() -> None:
        connection = Connection()
        await enter(connection)
        protocol = connection.transport.protocol
        assert isinstance(protocol, FallbackProtocol) == falcon
        assert protocol.phase() is phase
        if phase is Phase.ANSWER:
            await answer(connection)
        limit_s = IDLE_TIMEOUT_S
        if protocol.phase() is not Phase.IDLE:
            limit_s = int(LIMITS[protocol.phase()].time_s)
        for _ in range(limit_s):
            protocol.tick()
            assert not connection.transport.closed
        protocol.tick()
        await connection.settle()
        assert connection.transport.closed

    asyncio.run(test())


def tick(connection: Connection) -> None:
    """Tick as the server does, which does not know what the transport reads with."""
    (protocol,) = connection.state.connections
    protocol.tick()  # type: ignore[union-attr]


async def answer(connection: Connection) -> None:
    """Answer the request under way, which no clock ends here, however long it takes."""
    for _ in range(10_000):
        connection.transport.protocol.tick()
    assert not connection.transport.closing
    for call in connection.calls:
        call.answer()
        await connection.settle()
    connection.may_answer.set()
    await connection.settle()


@pytest.mark.parametrize("path", [b"/v1/models/m:predict", ESCAPED])
@pytest.mark.parametrize("begun", [0, 30], ids=["idle", "in-the-next-head"])
def test_every_request_has_its_own_time_also_between_two_looks_at_the_clock(
    path: bytes, begun: int
) -> None:
    """The same phase at every look, and yet always another request."""

    async def test() -> None:
        connection = Connection(at_once=True)
        data = request(b"{}", path=path)
        connection.feed(data[:begun])
        for _ in range(3 * IDLE_TIMEOUT_S):
            connection.feed(data[begun:] + data[:begun])
            await connection.settle()
            tick(connection)
        assert connection.transport.written.count(b"200 OK") == 3 * IDLE_TIMEOUT_S
        assert not connection.transport.closing

    asyncio.run(test())


@scenario
async def test_empty_lines_do_not_keep_a_connection() -> None:
    connection = Connection()
    for _ in range(IDLE_TIMEOUT_S + 1):
        connection.feed(b"\r\n")
        await connection.settle()
        connection.transport.protocol.tick()
    assert connection.transport.closed


LARGE_BYTES = 8 * LEAST_RECEIVED_BYTES


@pytest.mark.parametrize("way", ["gathered", "placed", "falcon"])
@pytest.mark.parametrize("enough", [True, False])
def test_a_large_body_may_take_its_time_as_long_as_it_comes(way: str, enough: bool) -> None:
    async def test() -> None:
        places = way == "placed"
        connection = Connection(at_once=True, places=places, max_request_bytes=LARGE_BYTES)
        path = ESCAPED if way == "falcon" else b"/v2/models/m/infer"
        head = request(b"", b"Inference-Header-Content-Length: 2", path=path)
        connection.feed(head.replace(b"Content-Length: 0", b"Content-Length: %d" % LARGE_BYTES))
        await connection.settle()
        connection.feed(b"{}")
        a_second = LEAST_RECEIVED_BYTES // BODY_TIMEOUT_S + (1 if enough else -1)
        sent_bytes = 2
        while sent_bytes < LARGE_BYTES and not connection.transport.closing:
            size = min(a_second, LARGE_BYTES - sent_bytes)
            connection.feed(bytes(size))
            await connection.settle()
            tick(connection)
            sent_bytes += size
        assert (sent_bytes == LARGE_BYTES) == enough
        assert (connection.placed is not None) == places
        assert bool(connection.handed_over) == (way == "falcon")
        assert connection.transport.written.startswith(b"HTTP/1.1 200" if enough else b"HTTP/1.1 4")

    asyncio.run(test())


@scenario
async def test_a_body_that_nobody_wants_is_not_taken_for_ever_however_fast_it_comes() -> None:
    connection = Connection()
    connection.feed(request(b"", path=UNREAD.encode()).replace(b": 0", b": %d" % (1 << 40)))
    await connection.settle()
    for _ in range(BODY_TIMEOUT_S + 1):
        connection.feed(bytes(1 << 20))
        connection.transport.protocol.tick()
    assert connection.transport.closed


@scenario
async def test_on_falcon_too_more_of_an_answer_is_no_sign_that_anything_was_taken() -> None:
    connection = Connection()
    await at_the_control_address(connection)
    protocol = connection.transport.protocol
    stalled_s = protocol._exchanges.stalled_s
    protocol.tick()
    assert stalled_s() == 0, "nothing waits"
    for second in range(4):
        protocol._answering.write(b"12345")
        connection.transport.left_bytes += 5
        protocol.tick()
        assert stalled_s() == second
    # As much as comes is taken.
    protocol._answering.write(b"12345")
    protocol.tick()
    assert stalled_s() == 0
