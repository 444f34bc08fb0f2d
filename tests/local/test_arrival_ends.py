"""Large bodies that do not come whole: clients that leave, stops, and memory that is held."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from arrival_harness import (
    EACH,
    LANE_BYTES,
    Harness,
    large,
    scenario,
    text_of,
    total,
    values,
)

from ringbatch.frontend.http.phases import BODY_TIMEOUT_S, BODY_TOO_SLOW
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.tallies import CLIENT_GONE, Protocol


@contextmanager
def begun(harness: Harness) -> Iterator[bytes]:
    """A request whose body has come in part; gives what is still to come."""
    request = large(6)
    harness.transport.feed(request[:9000])
    assert harness.receives()
    assert harness.lane.in_flight == 1
    yield request[9000:]


@scenario
async def test_a_client_that_leaves_gives_the_slot_back(harness: Harness) -> None:
    with begun(harness):
        harness.transport.close()
    assert await harness.answers() == []
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", CLIENT_GONE)]


@scenario
async def test_a_body_that_does_not_come_is_refused_and_gives_the_slot_back(
    harness: Harness,
) -> None:
    with begun(harness) as rest:
        for _ in range(BODY_TIMEOUT_S):
            harness.connection.tick()
        assert not harness.transport.written
        harness.connection.tick()
    ((status, text),) = await harness.answers()
    assert (status, text) == (408, BODY_TOO_SLOW)
    assert harness.transport.ended
    assert harness.lane.in_flight == 0
    # Another request has its slot now.
    slots = np.frombuffer(harness.lane.memory, "u1")
    before = slots.copy()
    harness.transport.feed(rest)
    assert (slots == before).all()
    # And the request that has ended last.
    harness.service.record_outside(Protocol.HTTP, 404)
    harness.transport.close()
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", 408)]


@scenario
async def test_a_stop_waits_for_the_rest_of_the_body(harness: Harness) -> None:
    with begun(harness) as rest:
        harness.connection.shutdown()
        harness.connection._close_if_idle()
        harness.transport.feed(rest)
    assert await harness.answers() == [total(6)]
    assert harness.transport.closed


@scenario
async def test_a_request_whose_model_left_meanwhile_is_refused(harness: Harness) -> None:
    with begun(harness) as rest:
        offset = harness.segment.layout.model(0)
        publish(harness.segment.words, offset, ModelState.LOADING)
        harness.transport.feed(rest)
    ((status, _),) = await harness.answers()
    assert status == 503


@scenario
async def test_a_client_that_leaves_after_its_body_came_cancels_its_request(
    harness: Harness,
) -> None:
    with begun(harness) as rest:
        harness.transport.feed(rest)
        harness.transport.close()
    assert await harness.answers() == []
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", CLIENT_GONE)]


@scenario
async def test_writing_may_pause_while_a_body_comes(harness: Harness) -> None:
    with begun(harness) as rest:
        seen = []
        for call in (
            harness.transport.protocol.pause_writing,
            harness.transport.protocol.resume_writing,
        ):
            call()
            seen.append(harness.transport.reading)
        assert seen == [False, True]
        harness.transport.feed(rest)
    assert await harness.answers() == [total(6)]


@scenario
async def test_a_connection_with_a_large_body_can_be_handed_over_afterwards(
    harness: Harness,
) -> None:
    harness.transport.feed(large(7)[:9000])
    harness.transport.feed(large(7)[9000:])
    assert await harness.answers() == [total(7)]
    harness.transport.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert harness.handed_over == 1
    assert harness.transport.reading
    while b'{"status":"alive"}' not in harness.transport.written:
        await asyncio.sleep(0)


@scenario
async def test_senders_that_owe_bytes_hold_half_of_the_memory_at_most(harness: Harness) -> None:
    text = text_of(values(0, 2))
    owing = []
    while (arrival := harness.service.prepare("sum", text, 8 * EACH)) is not None:
        owing.append(arrival)
    assert sum(arrival.size for arrival in owing) <= LANE_BYTES // 2
    assert sum(arrival.size for arrival in owing) + owing[0].size > LANE_BYTES // 2
    owing.pop().abandon()
    again = harness.service.prepare("sum", text, 8 * EACH)
    assert again is not None
    for arrival in (*owing, again):
        arrival.abandon()


@scenario
async def test_without_a_free_slot_a_body_is_gathered(harness: Harness) -> None:
    reference = harness.service.model("sum").reference
    slots = []
    while (slot := harness.lane.claim(8, 512, reference)) is not None:
        slots.append(slot)
    assert harness.service.prepare("sum", text_of(values(0)), 4 * EACH) is None
    for slot in slots:
        harness.lane.abort(slot)
