"""Streams of the page's watchers: the events of each, and its end."""

import asyncio
import os
from typing import Any

import pytest
from falcon.testing import ASGIConductor
from http_harness import Transport, uvicorn_config
from page_harness import admitted, engine, next_events, run
from uvicorn.server import ServerState

from ringbatch.frontend.http.asgi_scope import EXCHANGES
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.phases import LIMITS, Phase
from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.frontend.page import subscribers as subscribers_module
from ringbatch.frontend.page.feed import BEGINNING, HEARTBEAT
from ringbatch.frontend.page.history import History
from ringbatch.frontend.page.subscribers import MAX_LAG_S, PIECE_BYTES, Subscribers
from ringbatch.shm.segment import Segment


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the engine's name, pid and serving lanes, which a local segment lacks."""
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", os.getpid())
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 1)


def test_a_new_subscriber_gets_the_past_the_state_and_then_news() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        subscribers.publish(10, b"one.", state=b"old;")
        subscribers.publish(20, b"two.", state=b"now;")
        subscriber = admitted(subscribers)
        assert await next_events(subscriber) == BEGINNING + b"one.two.now;"
        waiting = asyncio.create_task(next_events(subscriber))
        await asyncio.sleep(0)
        subscribers.publish(30, b"three.", state=b"now;")
        assert await waiting == b"three.", "the state is the same"
        subscribers.publish(40, None, state=b"other;")
        assert await next_events(subscriber) == b"other;"

    run(test())


def test_a_returning_subscriber_gets_the_missed_events_alone() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        for at_ms in (10, 20, 30):
            subscribers.publish(at_ms, b"%d." % at_ms)
        assert await next_events(admitted(subscribers, 20)) == BEGINNING + b"30."
        assert await next_events(admitted(subscribers, 99)) == BEGINNING

    run(test())


def test_a_long_past_is_sent_in_pieces() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        for at_ms in range(1, 10):
            subscribers.publish(at_ms, b"x" * (PIECE_BYTES // 4), state=b"s")
        subscriber = admitted(subscribers)
        pieces = [await next_events(subscriber) for _ in range(3)]
        assert all(len(piece) <= PIECE_BYTES + len(BEGINNING) for piece in pieces)
        assert b"".join(pieces).count(b"x") == 9 * (PIECE_BYTES // 4)
        assert pieces[-1].endswith(b"s")

    run(test())


def test_one_too_many_is_refused_in_words_and_one_that_left_makes_room() -> None:
    async def test() -> None:
        subscribers = Subscribers(History(), most=2)
        first, _ = admitted(subscribers), admitted(subscribers)
        assert subscribers.admit(0, set()) is None
        app = create_control_app(engine(), "1.2.3", subscribers)
        async with ASGIConductor(app) as conductor:
            answer = await conductor.simulate_get("/live")
            assert answer.status_code == 503
            assert "16 pages are open already" in answer.json["error"]
            assert int(answer.headers["retry-after"]) > 0
            assert (await conductor.simulate_get("/metrics")).status_code == 200
        first.gone()
        assert len(subscribers) == 1
        admitted(subscribers)

    run(test())


def test_a_closed_connection_is_reported_to_its_watcher() -> None:
    async def test() -> None:
        subscribers, exchanges = Subscribers(History()), set[Any]()
        subscriber = subscribers.admit(0, exchanges)
        assert subscriber is not None
        assert exchanges == {subscriber}
        await next_events(subscriber)
        waiting = asyncio.create_task(next_events(subscriber))
        await asyncio.sleep(0)
        for exchange in list(exchanges):
            exchange.gone()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert (len(subscribers), exchanges) == (0, set())

    run(test())


def test_streams_end_with_the_keys_and_with_the_server() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        subscriber = admitted(subscribers)
        subscribers.drop_all()
        with pytest.raises(StopAsyncIteration):
            await next_events(subscriber)
        admitted(subscribers)
        subscribers.close()
        assert len(subscribers) == 0
        assert subscribers.admit(0, set()) is None

    run(test())


def test_a_stream_without_news_shows_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers_module, "HEARTBEAT_S", 0.0)

    async def test() -> None:
        subscriber = admitted(Subscribers(History()))
        assert await next_events(subscriber) == BEGINNING
        assert await next_events(subscriber) == HEARTBEAT

    run(test())


def test_a_watcher_that_takes_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop, subscribers = asyncio.get_running_loop(), Subscribers(History())
        now_s = loop.time()
        subscriber = admitted(subscribers)
        subscribers.publish(10, b"one.")
        await next_events(subscriber)
        subscribers.publish(20, b"two.")
        monkeypatch.setattr(loop, "time", lambda: now_s + MAX_LAG_S - 1)
        assert await next_events(subscriber) == b"two."
        monkeypatch.setattr(loop, "time", lambda: now_s + 3 * MAX_LAG_S)
        subscribers.publish(30, b"three.")
        with pytest.raises(StopAsyncIteration):
            await next_events(subscriber)
        assert len(subscribers) == 0

    run(test())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def watching(subscribers: Subscribers) -> tuple[FallbackProtocol, Transport]:
    """A browser's connection to the control address, which has asked for the stream."""
    app = create_control_app(engine(), "1.2.3", subscribers)
    loop, transport = asyncio.get_running_loop(), Transport()
    protocol = FallbackProtocol(uvicorn_config(app), ServerState(), {}, loop)
    transport.protocol = protocol
    protocol.connection_made(transport)
    protocol.data_received(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return protocol, transport


def test_one_that_takes_nothing_is_written_nothing_more_and_is_dropped_in_the_end() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        protocol, transport = watching(subscribers)
        await settled()
        assert len(subscribers) == 1
        transport.left_bytes = 1 << 17
        protocol.pause_writing()
        for at_ms in range(1, 1000):
            subscribers.publish(at_ms, b"x" * 1000)
        await settled()
        assert len(transport.written) < 2 * PIECE_BYTES
        for _ in range(int(LIMITS[Phase.TAKING].time_s) + 2):
            protocol.tick()
        assert transport.closed
        assert len(subscribers) == 0

    run(test())


def test_one_that_takes_all_of_it_is_never_dropped_for_its_age() -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        protocol, transport = watching(subscribers)
        for at_ms in range(1, 4000):
            subscribers.publish(at_ms, b"%d." % at_ms)
            await asyncio.sleep(0)
            protocol.tick()
        await settled()
        assert not transport.closing
        assert b"3999." in transport.written
        transport.close()
        await settled()
        assert len(subscribers) == 0

    run(test())


@pytest.mark.parametrize(
    ("headers", "query", "known"),
    [
        ({}, "", "1.2.3."),
        ({"Last-Event-ID": "1"}, "", "2.3."),
        ({}, "after=2", "3."),
        ({"Last-Event-ID": "2"}, "after=1", "3."),
        ({"Last-Event-ID": "99"}, "", ""),
        ({"Last-Event-ID": "-1"}, "", "1.2.3."),
        ({"Last-Event-ID": "one"}, "", "1.2.3."),
        ({"Last-Event-ID": "9" * 400}, "", "1.2.3."),
        ({"Last-Event-ID": str(1 << 60)}, "", "1.2.3."),
    ],
)
def test_the_stream_goes_on_behind_the_known_events(
    headers: dict[str, str], query: str, known: str
) -> None:
    async def test() -> None:
        subscribers = Subscribers(History())
        for at_ms in (1, 2, 3):
            subscribers.publish(at_ms, b"%d." % at_ms)
        app = create_control_app(engine(), "1.2.3", subscribers)
        async with (
            ASGIConductor(app) as conductor,
            conductor.simulate_get_stream("/live", headers=headers, query_string=query) as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["cache-control"] == "no-store"
            assert (await answer.stream.read()).decode() == BEGINNING.decode() + known
            subscribers.close()

    run(test())


def test_the_stream_is_one_of_its_connection_s_exchanges() -> None:
    exchanges: set[Any] = set()

    async def test() -> None:
        subscribers = Subscribers(History())
        app = create_control_app(engine(), "1.2.3", subscribers)
        conductor = ASGIConductor(app)
        async with (
            conductor,
            conductor.simulate_get_stream("/live", extras={EXCHANGES: exchanges}),
        ):
            (subscriber,) = exchanges
            subscriber.gone()

    run(test())
