"""The loops that make slot words themselves, for speed, make what `ringbatch.shm.slot` makes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import FAR_NS, local_segment, spec

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    GENERATION_MAX,
    WANTED,
    Reason,
    Status,
    control_word,
    done_word,
    is_open,
    reference,
)

SLOTS = 8
LANE = 1
MARK = BatchMark(1, 1, Reason.IDLE, 5)

Publish = Callable[[Lane], int]

generations = st.integers(0, GENERATION_MAX - 1)


def _send(lane: Lane) -> int:
    slot = lane.send(b"request", 64, 0, 1, 5, FAR_NS)
    assert slot is not None
    return slot


def _publish(lane: Lane) -> int:
    slot = lane.claim(7, 64, 0)
    assert slot is not None
    lane.publish_many([slot], 0, 1, 5, FAR_NS, 7)
    return slot


def _opened(published_before: int) -> tuple[Segment, Lane, Consumer]:
    """A lane whose slots have all been published that many times."""
    segment = local_segment(spec(), lanes=LANE + 1, slots=SLOTS)
    layout = segment.layout
    for slot in range(LANE * SLOTS, (LANE + 1) * SLOTS):
        first = layout.slot(slot)
        segment.words[first + SlotWords.CONTROL] = control_word(published_before, WANTED)
        segment.words[first + SlotWords.DONE] = done_word(
            reference(published_before, slot), Status.OK
        )
    lane = Lane(segment, LANE, lambda: None)
    return segment, lane, Consumer(segment.words, layout.submission_ring(LANE), SLOTS)


@pytest.mark.parametrize("publish", [_send, _publish])
@given(before=generations)
def test_a_lane_publishes_these_words(publish: Publish, before: int) -> None:
    segment, lane, submitted = _opened(before)
    slot = publish(lane)
    lane.submit()
    number = LANE * SLOTS + slot
    control = segment.words[segment.layout.slot(number) + SlotWords.CONTROL]
    assert control == control_word(before + 1, WANTED)
    assert submitted.take() == [reference(before + 1, number)]


@given(before=generations, age=st.integers(0, 2), status=st.sampled_from(Status))
def test_which_answer_a_lane_finds_in_a_slot(before: int, age: int, status: Status) -> None:
    segment, lane, _ = _opened(before)
    slot = _send(lane)
    number = LANE * SLOTS + slot
    answered = max(before + 1 - age, 0)
    done = done_word(reference(answered, number), status)
    segment.words[segment.layout.slot(number) + SlotWords.DONE] = done
    assert lane.outcome(slot)[0] is (status if answered == before + 1 else Status.CORRUPT)


@given(before=generations, age=st.integers(0, 2), answered=st.booleans())
def test_which_requests_are_open(before: int, age: int, answered: bool) -> None:
    segment, lane, submitted = _opened(before)
    number = LANE * SLOTS + _send(lane)
    lane.submit()
    (latest,) = submitted.take()
    engine_slots = EngineSlots(segment, 0, lambda _lane: None)
    if answered:
        engine_slots.answer(latest, Status.OK, 0, MARK, 6)
    ref = reference(max(before + 1 - age, 0), number)
    first = segment.layout.slot(number)
    words = segment.words[first + SlotWords.CONTROL], segment.words[first + SlotWords.DONE]
    requests, spoilt, cancelled, strays = engine_slots.read_open(LANE, [ref])
    assert (bool(requests), spoilt, cancelled, strays) == (is_open(ref, *words), [], [], 0)
