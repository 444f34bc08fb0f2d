"""Looks at the engine for the page's subscribers."""

import os
import time
from dataclasses import replace

import pytest
from falcon.testing import TestClient
from page_harness import admitted, engine, next_events, run
from segment_fixture import spec

from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.frontend.page.history import History
from ringbatch.frontend.page.live import PERIOD_S, LiveFeed
from ringbatch.frontend.page.subscribers import Subscribers
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.model_spec import LOADING
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import RequestRecord, Slowest
from ringbatch.shm.tallies import Protocol

S = 1_000_000_000
WALL_MS = 1_800_000_000_000


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the engine's name, pid and serving lanes, which a local segment lacks."""
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", os.getpid())
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 1)


def looking(segment: Segment) -> tuple[LiveFeed, Subscribers]:
    subscribers = Subscribers(History())
    return LiveFeed(segment, subscribers, {"version": "1.2.3"}), subscribers


def test_each_look_is_published_and_the_second_one_has_the_events() -> None:
    async def test() -> None:
        segment = engine()
        live, subscribers = looking(segment)
        live.look(100 * S, WALL_MS)
        segment.words[segment.layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
        segment.words[segment.layout.worker(0) + WorkerWords.PID] = 4711
        live.look(101 * S, WALL_MS + 1000)
        piece = await next_events(admitted(subscribers))
        assert piece.count(b"event: second\n") == 1
        assert f"id: {WALL_MS + 1000}\n".encode() in piece
        for expected in (b"event: terms", b"event: state", b"event: slowest", b"process 4711"):
            assert piece.count(expected) >= 1

    run(test())


def test_a_model_that_comes_and_goes_is_followed() -> None:
    async def test() -> None:
        segment = engine(spec(0, name="a"), spec(1, name="b", workers=(1,)))
        first, second = segment.models
        live, subscribers = looking(segment)
        subscriber = admitted(subscribers)
        live.look(100 * S, WALL_MS)
        segment.model_table.publish((first,))
        live.look(101 * S, WALL_MS + 1000)
        segment.model_table.publish((first, second))
        live.look(102 * S, WALL_MS + 2000)
        piece = await next_events(subscriber)
        assert b"b is gone" in piece
        assert b"b is there" in piece

    run(test())


def test_looks_become_rare_where_they_cost_much() -> None:
    costs = iter([0, 1_000_000, 0, 20_000_000])
    live = LiveFeed(engine(), Subscribers(History()), {}, lambda: next(costs))
    assert live.look(100 * S, WALL_MS) == PERIOD_S
    assert live.look(101 * S, WALL_MS) == pytest.approx(4.0)


def test_a_failing_look_is_logged_once_and_the_next_one_may_succeed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    segment = engine()
    live, subscribers = looking(segment)
    with monkeypatch.context() as broken:
        broken.setattr(Segment, "read_models", lambda _: 1 / 0)
        for second in range(3):
            assert live.look((100 + second) * S, WALL_MS) >= PERIOD_S
    assert len(caplog.records) == 1
    live.look(104 * S, WALL_MS)
    assert "state" in subscribers.latest


def test_programs_get_the_slowest_requests_too() -> None:
    segment = engine(spec(0, name="a"))
    app = TestClient(create_control_app(segment, "1.2.3", Subscribers(History())))
    assert app.simulate_get("/slowest").json == {"slowest": []}

    found = Breakdown(0, 0, queue=2_000_000, run=5_000_000, batch=9, batch_rows=4, reason="full")
    found = found._replace(copy=3_000_000)
    kept = Slowest(segment, 0)
    for account, name in ((segment.models[0].account, "r-1"), (segment.layout.models, "r-2")):
        kept.put(RequestRecord(time.monotonic_ns(), account, Protocol.V1, 200, 1, found, "", name))
    first, second = app.simulate_get("/slowest").json["slowest"]
    assert {first["model"], second["model"]} == {"a", ""}
    assert first["phases"] == {"queue": 2.0, "copy": 3.0, "run": 5.0}
    assert (first["ms"], first["cause"], first["reason"]) == (7.0, "batch", "full")
    assert len(first["batch"]) == 36


def test_a_loading_model_does_not_take_the_name_of_a_serving_one() -> None:

    serving = spec(0, name="a")
    loading = replace(serving, index=1, workers=(1,), state=LOADING)
    segment = engine(serving, loading)
    live, subscribers = looking(segment)
    live.look(100 * S, WALL_MS)
    state = subscribers.latest["state"][1]
    assert b'"title":"a"' in state
    assert b'"title":"a version 1, loading"' in state
