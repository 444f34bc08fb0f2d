"""Engine slots: a holder reads requests, one by one and many at once, and answers them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_harness import LANE_BYTES, LANES, LAYOUT, MARK, SLOTS, Harness, ask

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.slot import (
    SLOT_MASK,
    Answer,
    State,
    Status,
    reference,
)
from ringbatch.shm.uniform_batch import UniformBatch, UniformBatchReader


@pytest.fixture(params=[0, 1], ids=["lane 0", "lane 1"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(index=request.param)


def ways_to_read(harness: Harness) -> list[Callable[[list[int]], UniformBatch | None]]:
    """Return both ways to read a batch: for few requests, and for as many as take arrays."""
    reader = UniformBatchReader(harness.segment)
    return [reader.read, reader._read_many]


@pytest.mark.parametrize(
    "header",
    [
        {SlotWords.MODEL: 1},
        {SlotWords.ROWS: 0},
        {SlotWords.KEY_BYTES: 8},
        {SlotWords.REQUEST_BYTES: LANE_BYTES + 1},
        {SlotWords.REQUEST_BYTES: (1 << 64) - 1},
        {SlotWords.REQUEST_OFFSET: LAYOUT.lane_payload_byte(0) - 1},
        {SlotWords.REQUEST_OFFSET: LAYOUT.lane_payload_byte(1)},
        {SlotWords.REQUEST_OFFSET: 0},
        {SlotWords.REQUEST_OFFSET: (1 << 64) - 8},
        {SlotWords.RESULT_OFFSET: LAYOUT.lane_payload_byte(0) - 1},
        {SlotWords.RESULT_OFFSET: LAYOUT.lane_payload_byte(1) + 1},
        {SlotWords.RESULT_OFFSET: LAYOUT.lane_payload_byte(1) - 99},
        {SlotWords.RESULT_CAPACITY: LANE_BYTES},
        {SlotWords.RESULT_CAPACITY: (1 << 64) - 1},
        {
            SlotWords.REQUEST_OFFSET: LAYOUT.lane_payload_byte(0) + 8,
            SlotWords.RESULT_OFFSET: LAYOUT.lane_payload_byte(0) + 8 + 64,
        },
        {SlotWords.KEY_BYTES: 5000, SlotWords.REQUEST_BYTES: 5000},
    ],
    ids=str,
)
def test_a_header_outside_its_lanes_limits_is_not_read(header: dict[int, int]) -> None:
    harness = Harness()
    slot = ask(harness.lane)
    harness.lane.submit()
    (ref,) = harness.submissions.take()
    assert harness.worker.read(ref) is not None
    assert all(read([ref]) is not None for read in ways_to_read(harness))
    for word, value in header.items():
        harness.segment.words[harness.slot_word(slot, word)] = value
    assert harness.worker.read(ref) is None
    assert all(read([ref]) is None for read in ways_to_read(harness))


def test_a_reference_to_no_slot_is_not_read(harness: Harness) -> None:
    assert harness.worker.read(reference(1, LANES * SLOTS)) is None
    assert harness.worker.read(reference(1, SLOT_MASK)) is None
    assert all(read([reference(1, SLOT_MASK)]) is None for read in ways_to_read(harness))


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=SLOTS)


@given(sizes)
def test_requests_read_together_are_those_read_singly_where_they_are_alike(
    lengths: list[int],
) -> None:
    harness = Harness(index=1)
    for length in lengths:
        ask(harness.lane, bytes(length))
    harness.lane.submit()
    requests = harness.requests()
    for read in ways_to_read(harness):
        alike = read([request.ref for request in requests])
        assert (alike is not None) == (len(set(lengths)) == 1)
        if alike is not None:
            assert harness.worker.requests(alike) == requests
            assert list(alike.slots) == [request.ref & SLOT_MASK for request in requests]


def test_every_account_word_is_read_as_it_was_published(harness: Harness) -> None:
    accounts = [0, 1, (1 << 64) - 1]
    lane = harness.lane
    for account in accounts[:2]:
        lane.send(b"request", 100, 0, 1, 5, 6, account=account)
    slot = lane.claim(7, 100, 0)
    assert slot is not None
    lane.publish(slot, 0, 1, 5, 6, 7, account=accounts[2])
    lane.submit()
    references = harness.submissions.take()
    found, *_ = harness.collector.read_open(harness.index, references)
    assert [request.account for request in found] == accounts
    singly = [harness.collector.read(ref) for ref in references]
    assert singly == found


@pytest.mark.parametrize("moved_bytes", [-64, 64, 8, -LAYOUT.lane_payload_byte(1)])
def test_requests_whose_results_lie_elsewhere_are_not_alike(
    harness: Harness, moved_bytes: int
) -> None:
    slots = [ask(harness.lane) for _ in range(3)]
    harness.lane.submit()
    references = harness.submissions.take()
    assert all(read(references) is not None for read in ways_to_read(harness))
    word = harness.slot_word(slots[1], SlotWords.RESULT_OFFSET)
    harness.segment.words[word] = (harness.segment.words[word] + moved_bytes) % (1 << 64)
    assert [read(references) for read in ways_to_read(harness)] == [None, None]


@pytest.mark.parametrize("way", [0, 1], ids=["few", "many"])
def test_requests_answered_together_are_answered_like_single_ones(
    harness: Harness, way: int
) -> None:
    slots = [ask(harness.lane) for _ in range(3)]
    harness.lane.submit()
    alike = ways_to_read(harness)[way](harness.submissions.take())
    assert alike is not None
    harness.worker.answer_uniform(alike, Status.OK, 4, MARK, 12)
    harness.worker.flush()
    assert harness.lane_wakes == [harness.index]
    assert harness.lane.collect() == slots
    for slot in slots:
        assert harness.lane.answer(slot) == Answer(Status.OK, 4, *MARK, 12)


def test_every_slot_that_held_a_request_is_listed_with_its_state(harness: Harness) -> None:
    answered, cancelled, waiting = (ask(harness.lane) for _ in range(3))
    first = harness.index * SLOTS
    harness.lane.cancel(cancelled)
    harness.lane.submit()
    harness.answer(harness.requests()[0])
    states = {ref & SLOT_MASK: state for ref, state in harness.collector.published()}
    assert states == {
        first + answered: State.FREE,
        first + cancelled: State.CANCELLED,
        first + waiting: State.PUBLISHED,
    }
