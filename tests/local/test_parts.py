"""Tests shm/parts.py: a ring of parts in a slot, written and read in any order of steps."""

from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_harness import LAYOUT, MARK, SLOTS, WORKER, Harness, ask
from segment_fixture import local_segment, spec

from ringbatch.shm.descriptors import RingWords, SlotWords
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, WORD
from ringbatch.shm.parts import CorruptPartsError, PartReader, PartWriter, bytes_for
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import Status, as_part

RESULT_BYTES = 16 * ALIGNMENT
LARGEST = RESULT_BYTES // 2 - ALIGNMENT


def published(lane: Lane, reader: PartReader, result_bytes: int = RESULT_BYTES) -> int:
    """Publish a request that wants parts, and return its slot."""
    slot = lane.claim(4, result_bytes, 0)
    assert slot is not None
    reader.open(slot)
    lane.publish(slot, 0, 1, 5, 6, 4)
    lane.submit()
    return slot


class Ring:
    """Request that wants parts, with both ends of its ring."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.lane = self.harness.lane
        self.reader = PartReader(self.lane)
        self.slot = published(self.lane, self.reader)
        (self.request,) = self.harness.requests()
        self.writer: PartWriter = self.harness.worker.part_writer(self.request, MARK.batch)

    def put(self, part: bytes) -> bool:
        """Write a part if there is room."""
        room = self.writer.first_room()
        written = self.writer.write(part)
        if room is not None and len(part) <= room.size:
            assert written
            assert self.lane.memory[room.start : room.start + len(part)] == part
        return written

    def take(self) -> bytes | None:
        """Read and free the next part."""
        found = self.reader.next(self.slot)
        if found is None:
            return None
        start, size = found
        part = bytes(self.lane.memory[start : start + size])
        self.reader.take(self.slot, size)
        return part


STEPS = st.lists(st.one_of(st.none(), st.integers(0, LARGEST)), max_size=80)


@given(STEPS)
def test_parts_come_whole_and_in_order(steps: list[int | None]) -> None:
    ring = Ring()
    written: deque[bytes] = deque()
    for number, size in enumerate(steps):
        if size is None:
            assert ring.take() == (written.popleft() if written else None)
            continue
        part = bytes([number % 251]) * size
        if ring.put(part):
            written.append(part)
        else:
            assert written, "a part of up to half of the ring has room once all are read"
    while written:
        assert ring.take() == written.popleft()
    assert ring.take() is None


@given(st.lists(st.integers(0, LARGEST), min_size=1, max_size=40))
def test_a_part_finds_room_once_all_before_it_are_read(sizes: list[int]) -> None:
    ring = Ring()
    for size in sizes:
        assert ring.put(b"x" * size)
        assert ring.take() == b"x" * size


@given(st.integers(0, 1000))
def test_the_memory_for_a_part_is_enough_for_it(size: int) -> None:
    harness = Harness()
    reader = PartReader(harness.lane)
    slot = published(harness.lane, reader, bytes_for(size))
    (request,) = harness.requests()
    writer = harness.worker.part_writer(request, 1)
    assert writer.write(bytes(size))
    assert reader.next(slot) is not None


def test_only_a_request_that_asked_has_parts() -> None:
    ring = Ring()
    other = ask(ring.lane)
    ring.lane.submit()
    worker, (request,) = ring.harness.worker, ring.harness.requests()
    assert request.ref != ring.request.ref
    assert worker.wants_parts(ring.request.ref)
    assert not worker.wants_parts(request.ref)
    assert not worker.part_is_out(ring.request.ref)
    assert ring.put(b"a")
    assert worker.part_is_out(ring.request.ref)
    worker.answer(ring.request.ref, Status.OK, 0, MARK, 1)
    worker.answer(request.ref, Status.OK, 0, MARK, 1)
    worker.flush()
    for slot in ring.lane.collect():
        ring.lane.release(slot)
    assert {ask(ring.lane), ask(ring.lane)} <= {ring.slot, other, *range(4)}
    ring.lane.submit()
    assert not any(worker.wants_parts(later.ref) for later in ring.harness.requests())


def test_a_slot_has_parts_again() -> None:
    ring = Ring()
    assert ring.put(b"first")
    worker = ring.harness.worker
    worker.answer(ring.request.ref, Status.OK, 0, MARK, 1)
    worker.flush()
    for slot in ring.lane.collect():
        ring.lane.release(slot)
    while published(ring.lane, ring.reader) != ring.slot:
        pass
    later = {request.ref & 0xFFFFFF: request for request in ring.harness.requests()}
    assert ring.reader.next(ring.slot) is None
    request = later[ring.slot]
    assert not worker.part_is_out(request.ref)
    ring.writer = worker.part_writer(request, 2)
    assert ring.put(b"second")
    assert ring.take() == b"second"


def test_a_notice_is_no_answer() -> None:
    ring = Ring()
    assert ring.put(b"a")
    worker = ring.harness.worker
    worker.post_part(ring.request.ref)
    worker.flush()
    assert ring.lane.collect() == []
    assert ring.lane.parted == {ring.slot}
    ring.lane.parted.clear()
    worker.post_part(ring.request.ref)
    worker.answer(ring.request.ref, Status.OK, 0, MARK, 1)
    worker.flush()
    assert ring.lane.collect() == [ring.slot]
    assert not ring.lane.parted


def test_each_notice_goes_to_the_lane_of_its_request() -> None:
    entry = spec()
    segment = local_segment(entry, lanes=3)
    lanes = [Lane(segment, number, lambda: None) for number in range(3)]
    woken: list[int] = []
    worker = EngineSlots(segment, 0, woken.append)
    noticed = {number: published(lanes[number], PartReader(lanes[number])) for number in (2, 1)}
    for number in noticed:
        words = Consumer(
            segment.words, segment.layout.submission_ring(number), segment.layout.slots
        ).take()
        worker.post_part(words[0])
    worker.flush()
    assert woken == [2, 1]
    for number, lane in enumerate(lanes):
        assert lane.collect() == []
        assert lane.parted == ({noticed[number]} if number in noticed else set())


def test_a_notice_to_a_cancelled_request_or_to_none_is_dropped() -> None:
    ring = Ring()
    ring.lane.cancel(ring.slot)
    worker = ring.harness.worker
    worker.post_part(ring.request.ref)
    worker.flush()
    assert ring.lane.collect() == []
    assert not ring.lane.parted
    worker.post_part(as_part(ring.request.ref) + (1 << 24))
    worker.flush()
    assert ring.lane.collect() == []
    assert not ring.lane.parted


def test_a_failure_behind_a_part_leaves_the_part_as_it_is() -> None:
    ring = Ring()
    assert ring.put(b"part")
    ring.harness.collector.fail(ring.request, Status.NO_WORKER, "x" * 500, MARK, 1)
    assert ring.take() == b"part"


def test_a_spoilt_end_is_found() -> None:
    ring = Ring()
    assert ring.put(b"part")
    first = ring.lane.first_word + ring.slot * SlotWords.SIZE
    ring.lane.words[first + SlotWords.PARTS_END] += 1 << 20
    with pytest.raises(CorruptPartsError):
        ring.take()


def test_a_spoilt_size_is_found() -> None:
    ring = Ring()
    assert ring.put(b"part")
    ring.lane.words[ring.lane.result_offset[ring.slot] // WORD] = 1 << 40
    with pytest.raises(CorruptPartsError):
        ring.reader.next(ring.slot)


def test_a_frontend_that_spoils_how_far_it_has_read_gets_no_more() -> None:
    ring = Ring()
    first = ring.lane.first_word + ring.slot * SlotWords.SIZE
    ring.lane.words[first + SlotWords.PARTS_TAKEN] += 1 << 20
    assert ring.writer.first_room() is None
    assert not ring.put(b"part")


def test_the_rest_before_the_end_of_the_ring_is_no_room_for_a_part_that_skips_it() -> None:
    ring = Ring()
    first, second, third = (bytes([blocks]) * (blocks * ALIGNMENT) for blocks in (5, 7, 6))
    assert ring.writer.write(first)
    assert ring.writer.write(second)
    assert ring.take() == first
    # A block more than the third part needs is free, and two of these are the rest.
    assert not ring.writer.write(third)
    assert ring.take() == second
    assert ring.writer.write(third)
    assert ring.take() == third


def test_a_full_ring_has_no_room_for_the_smallest_part() -> None:
    ring = Ring()
    for _ in range(RESULT_BYTES // ALIGNMENT):
        assert ring.writer.write(b"")
    assert not ring.writer.write(b"")
    assert ring.take() == b""
    assert ring.writer.write(b"")
    assert not ring.writer.write(b"")


class Counting:
    """Words that count the loads of one of them."""

    def __init__(self, words: memoryview, word: int) -> None:
        self._words = words
        self._word = word
        self.loads = 0

    def __getitem__(self, number: int) -> int:
        self.loads += number == self._word
        return self._words[number]


def test_a_writer_looks_how_far_the_frontend_has_read_where_it_knows_of_no_room() -> None:
    ring = Ring()
    word = ring.lane.first_word + ring.slot * SlotWords.SIZE + SlotWords.PARTS_TAKEN
    counting = Counting(ring.lane.words, word)
    ring.writer._load_acquire = cast(memoryview, counting)
    part = bytes(ALIGNMENT)
    fit = RESULT_BYTES // (2 * ALIGNMENT)
    for _ in range(fit):
        assert ring.writer.write(part)
    assert counting.loads == 1
    assert not ring.writer.write(part), "it knows of no more, and looks in vain"
    assert ring.take() == part
    assert ring.writer.write(part)
    assert not ring.writer.write(part)
    assert counting.loads == 4
    while ring.take() is not None:
        pass
    for _ in range(fit):
        assert ring.writer.write(part)
    assert counting.loads == 5


def test_notices_leave_room_for_every_answer() -> None:
    harness = Harness()
    reader, worker = PartReader(harness.lane), harness.worker
    slots = [published(harness.lane, reader, 4 * ALIGNMENT) for _ in range(SLOTS)]
    requests = harness.requests()
    for _ in range(3):
        for request in requests:
            worker.post_part(request.ref)
            worker.flush()
    assert worker.delayed == SLOTS, "each has a notice that waits, beside one in the ring"
    for request in requests:
        worker.answer(request.ref, Status.OK, 0, MARK, 1)
    worker.flush()
    assert not worker.delayed
    assert sorted(harness.lane.collect()) == sorted(slots)
    assert not harness.lane.parted


def test_a_notice_that_waits_is_posted_once_there_is_room() -> None:
    harness = Harness()
    reader, worker = PartReader(harness.lane), harness.worker
    for _ in range(SLOTS):
        published(harness.lane, reader, 4 * ALIGNMENT)
    requests = harness.requests()
    for request in (*requests, requests[0]):
        worker.post_part(request.ref)
        worker.flush()
    assert worker.delayed == 1
    assert harness.lane.collect() == []
    harness.lane.parted.clear()
    worker.flush()
    assert not worker.delayed
    assert harness.lane.collect() == []
    assert len(harness.lane.parted) == 1


def test_answers_find_room_behind_those_to_a_dead_owner_with_their_notices() -> None:
    harness = Harness()
    reader, worker = PartReader(harness.lane), harness.worker

    def ask_all(lane: Lane, reader: PartReader) -> list[Request]:
        for _ in range(SLOTS):
            published(lane, reader, 4 * ALIGNMENT)
        return [request for request in harness.requests() if worker.is_open(request.ref)]

    def answer_all(requests: list[Request]) -> None:
        for request in requests:
            worker.post_part(request.ref)
        worker.flush()
        for request in requests:
            worker.answer(request.ref, Status.OK, 0, MARK, 1)
        worker.flush()

    early = ask_all(harness.lane, reader)
    ring = Consumer(
        harness.segment.words, LAYOUT.completion_ring(0, WORKER), LAYOUT.completion_words
    )
    head = ring.position
    answer_all(early)
    # The next owner finds the slots answered, and has emptied the ring before these words came.
    heir = harness.next_owner()
    harness.segment.words[LAYOUT.completion_ring(0, WORKER) + RingWords.HEAD] = head
    late = EngineSlots(harness.segment, WORKER, harness.lane_wakes.append)
    worker = late
    answer_all(ask_all(heir, PartReader(heir)))
    assert not worker.delayed
