"""Load of an engine as the segment, HAProxy and answers report it."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest
from segment_fixture import local_segment, spec

from ringbatch.frontend.load import agent_check
from ringbatch.frontend.load.agent_check import Agent
from ringbatch.frontend.load.haproxy_weight import EngineLoad, ModelLoad, word
from ringbatch.frontend.load.load_reader import LoadReader
from ringbatch.frontend.load.load_reports import (
    LOOK_NS,
    WINDOW_NS,
    Counts,
    LoadReports,
    Rates,
    rates,
)
from ringbatch.frontend.load.slowdown import UNNOTICED_NS, Pace
from ringbatch.shm import cost_profile
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_counters import CounterBlocks, Spent
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import Protocol, Tallies

MS: Final = 1_000_000
S: Final = 1_000_000_000


def served(answer_ms: int = 0, row_ns: int = 0, ready: int = 2) -> Segment:
    segment = local_segment(spec(max_batch_size=8, workers=(0, 1)))
    first = segment.layout.model(0)
    for word_of, value in (
        (ModelWords.READY, ready),
        (ModelWords.ANSWER_NS, answer_ms * MS),
        (ModelWords.ROW_NS, row_ns),
    ):
        segment.words[first + word_of] = value
    publish(segment.words, first, ModelState.SERVING if ready else ModelState.RESTARTING)
    cost_profile.write(segment, 0, [Trial(1, 0, 4 * MS), Trial(8, 0, 9 * MS)])
    cost_profile.write(segment, 1, [Trial(1, 0, 5 * MS)])
    return segment


def ran(segment: Segment, rows: int, batches: int, run_ms: int) -> None:
    """Count batches as the collector does."""
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    for _ in range(batches):
        counters.ran(rows, rows, Spent(0, run_ms * MS, 0, 0, 0))


def test_load_is_read_from_a_segment() -> None:
    # Sixteen instances a cycle, by two workers.
    segment = served(answer_ms=48, row_ns=MS)
    reader = LoadReader(segment)
    assert reader.look(S) == EngineLoad(False, (ModelLoad("m", "", 48 * MS, Pace(1.0, 3.0)),))
    found = after_slow_batches(reader, segment)
    # In warm-up the workers took 4 and 5 ms for one row, and one of them 9 for eight.
    slowdown = (36 * MS + 3 * UNNOTICED_NS) / (18 * MS + 3 * UNNOTICED_NS)
    assert found.models == (ModelLoad("m", "", 48 * MS, Pace(slowdown, 3.0)),)
    assert found.percent == 8


def test_a_models_slowness_is_not_held_against_the_next_of_its_name() -> None:
    segment = served()
    reader = LoadReader(segment)
    assert after_slow_batches(reader, segment).percent == 18
    segment.model_table.publish((replace(segment.models[0], generation=1),))
    assert reader.look(20 * S).percent == 100


def test_a_report_says_by_how_much_the_model_with_the_most_is_slow() -> None:
    segment, now_ns = served(), 0
    reports = LoadReports(segment, lambda: now_ns)
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    for second in range(5):
        now_ns = second * S
        assert reports.value("text").endswith(b"slowdown=1.0") == (second < 2)
        counters.ran(8, 8, Spent(0, 27 * MS, 0, 0, 0))
    assert reports.value("text").endswith(b"named_metrics.percent=6.0, named_metrics.slowdown=2.95")


def after_slow_batches(reader: LoadReader, segment: Segment) -> EngineLoad:
    """Return the load once the collector has counted batches of twice their time for a while."""
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    for second in range(2, 9):
        found = reader.look(second * S)
        for rows, run_ms in ((1, 9), (1, 9), (8, 18)):
            counters.ran(rows, rows, Spent(0, run_ms * MS, 0, 0, 0))
    return found


def test_an_engine_without_a_worker_is_down_and_a_stopping_one_is_not() -> None:
    segment = served(ready=0)
    assert (
        word(LoadReader(segment).look(time.monotonic_ns())) == b"down #m: no worker holds it now\n"
    )
    segment.publish_stopping()
    assert word(LoadReader(segment).look(time.monotonic_ns())) == b"up 0%\n"


def test_an_engine_that_needs_no_worker_until_a_request_comes_is_up() -> None:
    segment = local_segment(replace(spec(workers=(0,)), least=0, most=4))
    publish(segment.words, segment.layout.model(0), ModelState.AT_REST)
    assert word(LoadReader(segment).look(time.monotonic_ns())) == b"up 100%\n"


def test_an_engine_that_another_follows_gets_requests_to_its_end() -> None:
    segment = served()
    segment.drain(superseded=True)
    assert word(LoadReader(segment).look(time.monotonic_ns())) == b"up 100%\n"
    segment.drain()
    assert word(LoadReader(segment).look(time.monotonic_ns())) == b"up 0%\n"


def test_rates_are_those_of_the_time_that_passed() -> None:
    before = Counts(5 * S, 100, 10, {1: 1000, 2: 7})
    now = Counts(7 * S, 300, 14, {1: 1400, 2: 7, 3: 5000})
    # What account 3 counted before is not known.
    assert rates(before, now, {1: MS, 2: MS, 3: MS}) == Rates(100.0, 2.0, 0.2)
    assert rates(now, now, {1: MS}) == Rates(0.0, 0.0, 0.0)
    assert rates(now, before._replace(at_ns=9 * S), {1: MS}) == Rates(0.0, 0.0, 0.0)


def test_reports_look_again_after_a_while_and_divide_by_a_second_or_two() -> None:
    segment, now_ns = served(answer_ms=40, row_ns=MS), 50 * S
    reports = LoadReports(segment, lambda: now_ns)
    tally = Tallies(segment, 0).of(0, "m", "1")[Protocol.V1]
    first = reports.value("text")
    assert b"rps_fractional=0.0," in first
    for _ in range(30):
        tally.answered(MS, 4)
        tally.ended(503, MS)
    assert reports.value("text") == first, "it is not old enough"
    now_ns += LOOK_NS
    assert b"rps_fractional=600.0," in reports.value("text")
    now_ns += WINDOW_NS - LOOK_NS
    assert b"rps_fractional=60.0, eps=30.0," in reports.value("text")
    assert reports.value("text").startswith(b"TEXT application_utilization=0.12, ")
    # All that has been counted is before the window now.
    for _ in range(3):
        now_ns += WINDOW_NS
        reports.message()
    assert b"rps_fractional=0.0, eps=0.0," in reports.value("text")


async def reply(port: int, sent: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    found = await reader.read()
    writer.close()
    return found


Act = Callable[[int], Awaitable[None]]


def asked(act: Act, serves: Callable[[], bool] = lambda: True) -> None:
    """Do something while an agent answers at a port."""

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        load = EngineLoad(draining=False, models=())
        answering = asyncio.create_task(Agent(listener, serves, lambda: load).run())
        try:
            await asyncio.wait_for(act(listener.getsockname()[1]), 60)
        finally:
            answering.cancel()
            listener.close()

    asyncio.run(run())


def test_every_connection_gets_the_load_for_any_bytes_sent() -> None:
    async def act(port: int) -> None:
        for sent in (b"", b"lb=one\n", b"x" * 100_000):
            assert await reply(port, sent) == b"up 100%\n"

    asked(act)


def test_a_thousand_silent_connections_keep_nobody_out() -> None:
    async def act(port: int) -> None:
        silent = await asyncio.to_thread(connected, 1000, port)
        assert await reply(port) == b"up 100%\n"
        for one in silent:
            assert one.recv(100) == b"up 100%\n"
            one.close()

    asked(act)


def test_a_connection_that_stays_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_check, "LINGER_S", 0.01)

    async def act(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"up 100%\n"
        with pytest.raises(ConnectionError):
            await write_on(writer)

    asked(act)


def connected(count: int, port: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 60) for _ in range(count)]


async def write_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"more")
        await writer.drain()
        await asyncio.sleep(0.001)


def test_nobody_is_answered_before_the_engine_serves() -> None:
    serves = False

    async def act(port: int) -> None:
        nonlocal serves
        answer = asyncio.create_task(reply(port))
        await asyncio.sleep(0)
        assert not (await asyncio.wait([answer], timeout=0.01))[0]
        serves = True
        assert await answer == b"up 100%\n"

    asked(act, lambda: serves)
