"""Takeover of a lane: the requests and answers that its next owner finds, and their end."""

from collections.abc import Iterator

import pytest
from lane_harness import LANE_BYTES, LAYOUT, MARK, SLOTS, Harness, ask

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import (
    SLOT_BITS,
    Status,
    reference,
)


@pytest.fixture(params=[0, 1], ids=["lane 0", "lane 1"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(index=request.param)


def in_flight_memory(harness: Harness, slot: int) -> range:
    return range(harness.lane.request_offset[slot], harness.lane.result_offset[slot] + 100)


def claimed(lane: Lane) -> Iterator[int]:
    """Claim until there is no more."""
    while (slot := lane.claim(100, 100, 0)) is not None:
        yield slot


def test_a_request_in_flight_keeps_slot_and_memory_until_it_is_answered(harness: Harness) -> None:
    slots = {
        slot: in_flight_memory(harness, slot) for slot in (ask(harness.lane), ask(harness.lane))
    }
    harness.lane.submit()
    heir = harness.next_owner()
    assert heir.in_flight == 2
    others = list(claimed(heir))
    assert set(others) == set(range(SLOTS)) - set(slots)
    for other in others:
        start, end = heir.request_offset[other], heir.result_offset[other] + 100
        assert not any(memory.start < end and start < memory.stop for memory in slots.values())
        heir.abort(other)
    harness.serve()
    assert heir.collect() == []
    assert heir.in_flight == 0
    assert heir.claim(LANE_BYTES - LANE_BYTES // 8, 0, 0) is not None


def test_an_answer_its_owner_did_not_collect_does_not_reach_the_next(harness: Harness) -> None:
    ask(harness.lane, b"of the dead")
    harness.lane.submit()
    harness.serve()
    heir = harness.next_owner()
    slot = ask(heir, b"own")
    assert heir.collect() == []
    heir.submit()
    harness.serve()
    assert heir.collect() == [slot]
    assert harness.result(slot, heir) == b"OWN"


def test_an_answer_posted_after_the_takeover_does_not_reach_the_next_owner(
    harness: Harness,
) -> None:
    ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request)
    heir = harness.next_owner()
    slot = ask(heir)
    harness.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 1
    assert slot == request.ref & (SLOTS - 1), "the test wants the very slot to be in use again"


def test_answers_left_in_the_rings_do_not_keep_new_ones_out(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    harness.serve()
    heir = harness.next_owner()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.submit()
    harness.serve()
    assert harness.worker.delayed == 0
    assert set(heir.collect()) == slots


def test_answers_posted_after_the_takeover_do_not_keep_new_ones_out(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    for request in harness.requests():
        harness.answer(request)
    heir = harness.next_owner()
    harness.worker.flush()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.submit()
    harness.serve()
    assert harness.worker.delayed == 0, "what a worker has not posted dies with it"
    assert set(heir.collect()) == slots


def test_published_unsubmitted_requests_are_submitted_by_the_next_owner(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.collector_wakes.clear()
    heir = harness.next_owner()
    assert harness.collector_wakes == [None]
    (request,) = harness.requests()
    assert request.ref == reference(1, harness.index * SLOTS + slot)
    assert not harness.worker.wanted(request.ref)
    harness.answer(request)
    harness.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 0


def test_a_takeover_while_the_ring_is_full_loses_nothing(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    heir = harness.next_owner()
    assert heir.in_flight == SLOTS
    second_heir = harness.next_owner()
    harness.serve()
    assert second_heir.collect() == []
    assert second_heir.in_flight == 0
    slot = ask(second_heir)
    second_heir.submit()
    harness.serve()
    harness.serve()
    assert second_heir.collect() == [slot]


def test_a_header_that_no_owner_can_have_written_costs_its_slot_only(harness: Harness) -> None:
    good, bad = ask(harness.lane), ask(harness.lane)
    memory = in_flight_memory(harness, good)
    harness.lane.submit()
    for word, value in [
        (SlotWords.REQUEST_OFFSET, LAYOUT.lane_payload_byte(1) - 64),
        (SlotWords.RESULT_OFFSET, LAYOUT.lane_payload_byte(0)),
        (SlotWords.RESULT_CAPACITY, (1 << 64) - 1),
    ]:
        harness.segment.words[harness.slot_word(bad, word)] = value
        heir = harness.next_owner()
        assert heir.in_flight == 2
        for slot in claimed(heir):
            assert heir.request_offset[slot] not in memory
    for ref in harness.submissions.take():
        if harness.worker.is_open(ref):
            harness.worker.answer(ref, Status.CORRUPT, 0, MARK, 12)
    harness.worker.flush()
    last = harness.next_owner()
    starts = [last.request_offset[slot] for slot in claimed(last)]
    assert len(starts) == len(set(starts)) == SLOTS


def test_a_generation_goes_on_where_the_dead_owner_left_it(harness: Harness) -> None:
    for _ in range(5):
        slot = ask(harness.lane)
        harness.lane.submit()
        harness.serve()
        assert harness.lane.collect() == [slot]
        harness.lane.release(slot)
    heir = harness.next_owner()
    slot = ask(heir)
    heir.submit()
    refs = harness.submissions.take()
    assert [ref >> SLOT_BITS for ref in refs] == [6]
    assert [ref & (SLOTS - 1) for ref in refs] == [slot]
