"""Many requests at once are what they would be one after the other."""

import pytest
from segment_fixture import FAR_NS, local_segment, spec

from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.slot_answers import SlotAnswers

SLOTS = 8
REQUEST_BYTES, RESULT_BYTES = 64, 512
MARK = BatchMark(7, 3, Reason.FULL, 11)


def owned() -> tuple[Segment, Lane]:
    segment = local_segment(spec(timeout_ns=1), lanes=2, slots=SLOTS)
    return segment, Lane(segment, 1, lambda: None)


def submitted(segment: Segment) -> list[int]:
    ring = Consumer(segment.words, segment.layout.submission_ring(1), SLOTS)
    return ring.take()


def test_publishing_together_equals_publishing_one_by_one() -> None:
    (one_by_one, first), (together, second) = owned(), owned()
    for _ in range(3):
        singles = [first.claim(REQUEST_BYTES, RESULT_BYTES, 0) for _ in range(5)]
        many = second.claim_many(5, REQUEST_BYTES, RESULT_BYTES, 0)
        assert sorted(many) == sorted(slot for slot in singles if slot is not None)
        for slot in sorted(many):
            first.publish(slot, 0, 1, 3, FAR_NS, REQUEST_BYTES, 8)
        second.publish_many(sorted(many), 0, 1, 3, FAR_NS, REQUEST_BYTES, 8)
        # The fifth slot lies where memory was cut for the fifth request, either way.
        assert [first.request_offset[s] for s in many] == [second.request_offset[s] for s in many]
        for lane, segment in ((first, one_by_one), (second, together)):
            lane.submit()
            engine_slots = EngineSlots(segment, 0, lambda _lane: None)
            refs = submitted(segment)
            for ref in refs:
                engine_slots.answer(ref, Status.OK, 0, MARK, 1)
            engine_slots.flush()
            assert lane.collect() == sorted(many)
            for slot in sorted(many):
                lane.release(slot)
        start = one_by_one.layout.submissions_word
        assert one_by_one.memory[start:] == together.memory[start:]


def test_as_many_are_claimed_as_there_are() -> None:
    _, lane = owned()
    assert lane.claim_many(0, REQUEST_BYTES, RESULT_BYTES, 0) == []
    first = lane.claim_many(5, REQUEST_BYTES, RESULT_BYTES, 0)
    assert len(first) == 5
    second = lane.claim_many(5, REQUEST_BYTES, RESULT_BYTES, 0)
    assert sorted(first + second) == list(range(SLOTS))
    assert lane.claim_many(1, REQUEST_BYTES, RESULT_BYTES, 0) == []
    for slot in first:
        lane.release(slot)
    assert sorted(lane.claim_many(9, REQUEST_BYTES, RESULT_BYTES, 0)) == sorted(first)


def test_less_is_claimed_where_memory_ends_first() -> None:
    segment, lane = owned()
    size = segment.layout.lane_bytes // 4
    slots = lane.claim_many(SLOTS, size, 0, 0)
    assert len(slots) == 3  # large requests leave an eighth to small ones
    assert lane.in_flight == 3


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_is_ok_where_it_is_so_and_of_the_size(status: Status) -> None:
    segment, lane = owned()
    slots = lane.claim_many(3, REQUEST_BYTES, RESULT_BYTES, 0)
    lane.publish_many(slots, 0, 1, 0, FAR_NS, REQUEST_BYTES)
    lane.submit()
    engine_slots = EngineSlots(segment, 0, lambda _lane: None)
    good, other, larger = submitted(segment)
    engine_slots.answer(good, Status.OK, 40, MARK, 1)
    engine_slots.answer(other, status, 40, MARK, 1)
    engine_slots.answer(larger, Status.OK, 41, MARK, 1)
    engine_slots.flush()
    assert lane.collect() == slots
    expected = [True, status is Status.OK, False]
    assert SlotAnswers(segment, 1).ok(slots, 40).tolist() == expected
    assert SlotAnswers(segment, 1).ok(slots[::-1], 40).tolist() == expected[::-1]


def test_an_answer_to_an_earlier_request_of_the_slot_is_not_ok() -> None:
    segment, lane = owned()
    (slot,) = lane.claim_many(1, REQUEST_BYTES, RESULT_BYTES, 0)
    lane.publish_many([slot], 0, 1, 0, FAR_NS, REQUEST_BYTES)
    lane.submit()
    engine_slots = EngineSlots(segment, 0, lambda _lane: None)
    engine_slots.answer(submitted(segment)[0], Status.OK, 40, MARK, 1)
    engine_slots.flush()
    answers = SlotAnswers(segment, 1)
    assert answers.ok([slot], 40).all()
    lane.collect()
    lane.publish_many([slot], 0, 1, 0, FAR_NS, REQUEST_BYTES)
    assert not answers.ok([slot], 40).any()
