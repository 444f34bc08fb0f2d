"""A lane and a holder in one process: what goes in comes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_harness import LANE_BYTES, LANES, LAYOUT, MARK, SLOTS, WORKER, Harness, ask

from ringbatch.shm import layout as at
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import RingWords, SlotWords
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.ring import Producer
from ringbatch.shm.slot import (
    FLAG_BITS,
    Answer,
    Status,
    reference,
)


@pytest.fixture(params=[0, 1], ids=["lane 0", "lane 1"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(index=request.param)


def test_a_request_reaches_the_engine_and_its_answer_comes_back(harness: Harness) -> None:
    slot = ask(harness.lane, b"hello")
    harness.lane.submit()
    (request,) = harness.requests()
    assert request == Request(
        ref=reference(1, harness.index * SLOTS + slot),
        model=0,
        rows=1,
        request_bytes=5,
        key_bytes=0,
        result_capacity=100,
        request_offset=harness.lane.request_offset[slot],
        result_offset=harness.lane.result_offset[slot],
        accepted_ns=5,
        deadline_ns=6,
        account=0,
    )
    harness.answer(request)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.OK, 5, *MARK, 12)
    assert harness.result(slot) == b"HELLO"
    harness.lane.release(slot)
    assert harness.lane.in_flight == 0


def test_one_wake_up_for_all_that_is_submitted_and_for_all_that_is_answered(
    harness: Harness,
) -> None:
    harness.collector_wakes.clear()
    for _ in range(3):
        ask(harness.lane)
    assert harness.collector_wakes == []
    harness.lane.submit()
    harness.lane.submit()
    assert harness.collector_wakes == [None]
    harness.serve()
    assert harness.lane_wakes == [harness.index]
    harness.worker.flush()
    assert harness.lane_wakes == [harness.index]


def test_a_lane_without_a_free_slot_gives_none_and_stays_as_it_is(harness: Harness) -> None:
    slots = [ask(harness.lane) for _ in range(SLOTS)]
    assert sorted(slots) == list(range(SLOTS))
    assert harness.lane.claim(1, 1, 0) is None
    harness.lane.submit()
    harness.serve()
    assert sorted(harness.lane.collect()) == list(range(SLOTS))


def test_a_lane_without_memory_gives_none_until_some_is_free(harness: Harness) -> None:
    large = LANE_BYTES - LANE_BYTES // 8
    assert harness.lane.claim(LANE_BYTES, 0, 0) is None
    slot = harness.lane.claim(large, 0, 0)
    assert slot is not None
    assert harness.lane.claim(large, 0, 0) is None
    assert harness.lane.claim(100, 100, 0) is not None
    harness.lane.abort(slot)
    assert harness.lane.claim(large, 0, 0) is not None


def test_memory_that_free_slots_kept_is_there_for_requests_of_other_sizes(harness: Harness) -> None:
    for size in (100, 1000, 2000):
        slots = []
        while (slot := harness.lane.claim(size, 8, 0)) is not None:
            slots.append(slot)
        assert len(slots) == SLOTS
        for slot in slots:
            harness.lane.abort(slot)
    assert harness.lane.claim(LANE_BYTES - LANE_BYTES // 8, 0, 0) is not None


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans()), max_size=40))
def test_claimed_memory_lies_in_the_lane_and_is_never_shared(
    wishes: list[tuple[int, int, bool]],
) -> None:
    harness = Harness(index=1)
    low = LAYOUT.lane_payload_byte(1)
    held: dict[int, tuple[int, int]] = {}
    for request_bytes, result_bytes, frees in wishes:
        if frees and held:
            slot, _ = held.popitem()
            harness.lane.abort(slot)
        slot_or_none = harness.lane.claim(request_bytes, result_bytes, 0)
        if slot_or_none is None:
            continue
        assert slot_or_none not in held
        start = harness.lane.request_offset[slot_or_none]
        result = harness.lane.result_offset[slot_or_none]
        end = result + result_bytes
        assert start % at.ALIGNMENT == result % at.ALIGNMENT == 0
        assert low <= start <= start + request_bytes <= result <= end <= low + LANE_BYTES
        assert all(end <= other or stop <= start for other, stop in held.values())
        held[slot_or_none] = (start, max(end, start + 1))
    assert harness.lane.in_flight == len(held)


def test_a_cancelled_request_is_not_wanted_and_its_slot_comes_back_with_its_answer(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    assert harness.worker.wanted(request.ref)
    harness.lane.cancel(slot)
    assert not harness.worker.wanted(request.ref)
    assert harness.lane.counters[LaneCounter.CANCELLED] == 1
    assert harness.lane.in_flight == 1
    harness.answer(request)
    harness.worker.flush()
    assert harness.lane.collect() == []
    assert harness.lane.in_flight == 0
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 1


def test_a_cancelled_requests_memory_is_not_handed_out_while_it_is_in_flight(
    harness: Harness,
) -> None:
    slot = ask(harness.lane, bytes(1000))
    taken = range(harness.lane.request_offset[slot], harness.lane.result_offset[slot] + 100)
    harness.lane.submit()
    harness.lane.cancel(slot)
    while (other := harness.lane.claim(64, 0, 0)) is not None:
        assert other != slot
        assert harness.lane.request_offset[other] not in taken


def test_an_answer_posted_twice_is_one_answer(harness: Harness) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request)
    harness.worker.flush()
    assert harness.collector.repeat(request.ref)
    harness.collector.flush()
    assert harness.lane.collect() == [slot]
    harness.lane.release(slot)
    assert harness.collector.repeat(request.ref)
    harness.collector.flush()
    again = ask(harness.lane)
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 2
    assert harness.lane.in_flight == 1
    assert again == slot, "the test wants the very slot to be in use again"


def test_an_open_request_has_no_answer_to_repeat(harness: Harness) -> None:
    ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    assert harness.worker.is_open(request.ref)
    assert not harness.collector.repeat(request.ref)
    harness.answer(request)
    assert not harness.worker.is_open(request.ref)


def test_answers_that_find_no_room_wait_for_the_next_flush(harness: Harness) -> None:
    slots = {ask(harness.lane) for _ in range(SLOTS)}
    harness.lane.submit()
    requests = harness.requests()
    for request in requests:
        harness.answer(request, harness.collector)
    harness.collector.flush()
    times = LAYOUT.completion_words // SLOTS - 1
    for request in [*requests * times, *requests[:2]]:
        harness.collector.repeat(request.ref)
    harness.collector.flush()
    assert harness.collector.delayed == 2
    assert set(harness.lane.collect()) == slots
    harness.collector.flush()
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == SLOTS * times + 2
    harness.lane_wakes.clear()
    harness.collector.flush()
    assert harness.lane_wakes == []


def test_of_the_answers_that_find_no_room_those_stay_that_nobody_has_seen(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    earlier = harness.requests()
    for request in earlier:
        harness.answer(request)
    harness.worker.flush()
    for slot in harness.lane.collect():
        harness.lane.release(slot)
    for _ in range(LAYOUT.completion_words // SLOTS):
        for request in earlier:
            harness.collector.repeat(request.ref)
        harness.collector.flush()
    unseen = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request, EngineSlots(harness.segment, WORKER, harness.lane_wakes.append))
    harness.collector.repeat(request.ref)
    for request in earlier:
        harness.collector.repeat(request.ref)
    others = [ask(harness.lane) for _ in range(SLOTS - 1)]
    harness.lane.submit()
    for request in harness.requests():
        harness.answer(request, harness.collector)
    harness.collector.flush()
    assert harness.collector.delayed == SLOTS
    assert harness.lane.collect() == []
    harness.collector.flush()
    assert harness.collector.delayed == 0
    assert harness.lane.collect() == [unseen, *others]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (SlotWords.DONE, 2 << FLAG_BITS | Status.OK),
        (SlotWords.DONE, 1 << FLAG_BITS | len(Status)),
        (SlotWords.RESULT_BYTES, 101),
        (SlotWords.RESULT_BYTES, (1 << 64) - 1),
    ],
)
def test_an_answer_that_cannot_be_is_corrupt_and_has_no_result(
    harness: Harness, field: int, value: int
) -> None:
    slot = ask(harness.lane, result_bytes=100)
    harness.lane.submit()
    harness.serve()
    harness.segment.words[harness.slot_word(slot, field)] = value
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.CORRUPT, *[0] * 10)


def test_a_status_of_corrupt_is_an_answer_like_others(harness: Harness) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.answer(request.ref, Status.CORRUPT, 0, MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.CORRUPT, 0, *MARK, 12)


def test_a_result_that_is_too_large_says_how_large_it_would_be(harness: Harness) -> None:
    slot = ask(harness.lane, result_bytes=100)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.answer(request.ref, Status.RESULT_TOO_LARGE, 5000, MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot)[:2] == (Status.RESULT_TOO_LARGE, 5000)


def test_a_text_is_cut_to_the_room_there_is(harness: Harness) -> None:
    slot = ask(harness.lane, b"x", result_bytes=5)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.fail(request, Status.INVALID, "too long a text", MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot)[:2] == (Status.INVALID, 5)
    assert harness.result(slot) == b"too l"


@pytest.mark.parametrize(
    "word",
    [0, reference(1, LANES * SLOTS), reference(2, 0), reference(1, 3), (1 << 64) - 1],
    ids=hex,
)
def test_a_reference_that_nobody_waits_for_is_dropped_and_counted(word: int) -> None:
    harness = Harness()
    slot = ask(harness.lane)
    assert slot == 0
    ring = LAYOUT.completion_ring(0, WORKER)
    assert Producer(harness.segment.words, ring, LAYOUT.completion_words).offer([word])
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 1
    assert harness.lane.in_flight == 1


def test_a_corrupt_completion_ring_is_skipped_and_counted_and_the_others_are_read(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request, harness.collector)
    harness.collector.flush()
    broken = LAYOUT.completion_ring(harness.index, WORKER)
    harness.segment.words[broken + RingWords.TAIL] = LAYOUT.completion_words + 1
    assert harness.lane.collect() == [slot]
    assert harness.lane.counters[LaneCounter.CORRUPT_RINGS] == 1
