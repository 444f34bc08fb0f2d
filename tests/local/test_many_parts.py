"""Parts that are read together: the same parts as one by one, from rings in any state."""

from collections import deque
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_harness import Harness

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import ALIGNMENT, WORD
from ringbatch.shm.many_parts import ManyPartsReader
from ringbatch.shm.parts import PartReader, PartWriter

SLOTS: Final = 3
SIZE: Final = 10
"""Bytes of the parts that are read together."""
SIZES: Final = (0, 1, SIZE, ALIGNMENT, ALIGNMENT + 1)
RESULT_BYTES: Final = 8 * ALIGNMENT


class Rings:
    """Slots with parts, their writers, and what stands in each."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.lane = self.harness.lane
        self.one_by_one = PartReader(self.lane)
        self.slots: list[int] = []
        for _ in range(SLOTS):
            slot = self.lane.claim(4, RESULT_BYTES, 0)
            assert slot is not None
            self.one_by_one.open(slot)
            self.lane.publish(slot, 0, 1, 5, 6, 4)
            self.slots.append(slot)
        self.lane.submit()
        worker = self.harness.worker
        by_slot = {request.ref & 0xFFFFFF: request for request in self.harness.requests()}
        self.writers: list[PartWriter] = [
            worker.part_writer(by_slot[slot], 1) for slot in self.slots
        ]
        self.there: list[deque[bytes]] = [deque() for _ in self.slots]
        self.reader = ManyPartsReader(self.lane, self.slots, SIZE)
        self._number = 0

    def write(self, place: int, size: int) -> None:
        self._number += 1
        part = bytes([self._number % 251]) * size
        if self.writers[place].write(part):
            self.there[place].append(part)

    def take_one(self, place: int) -> None:
        """Take a part as a frontend does that reads each."""
        slot = self.slots[place]
        found = self.one_by_one.next(slot)
        assert (found is not None) == bool(self.there[place])
        if found is not None:
            start, size = found
            assert self.lane.memory[start : start + size] == self.there[place].popleft()
            assert self.one_by_one.take(slot, size) == bool(self.there[place])

    def take_together(self, places: set[int]) -> int:
        """Take the parts of some places, among those in which one stands; return how many."""
        found, parts = self.reader.read()
        heads = [there[0] for there, one in zip(self.there, found, strict=True) if one]
        assert [part.tobytes() for part in parts] == heads
        chosen = found & np.array([place in places for place in range(SLOTS)])
        others = self.reader.take(chosen)
        for place in np.flatnonzero(chosen):
            self.there[place].popleft()
        assert others.tolist() == [bool(self.there[place]) for place in np.flatnonzero(chosen)]
        return int(chosen.sum())


PLACES = st.integers(0, SLOTS - 1)
STEPS = st.lists(
    st.one_of(st.tuples(PLACES, st.sampled_from(SIZES)), PLACES, st.sets(PLACES)), max_size=60
)


@given(STEPS)
def test_parts_come_whole_and_in_order_by_both_ways(
    steps: list[tuple[int, int] | int | set[int]],
) -> None:
    rings = Rings()
    for step in steps:
        if isinstance(step, tuple):
            rings.write(*step)
        elif isinstance(step, set):
            rings.take_together(step)
        else:
            rings.take_one(step)
    for place in range(SLOTS):
        while rings.there[place]:
            rings.take_one(place)


def test_all_slots_are_read_at_once_until_the_ring_has_a_gap() -> None:
    rings = Rings()
    # A record takes two of the eight blocks of a ring.
    for _ in range(12):
        for place in range(SLOTS):
            rings.write(place, SIZE)
        assert rings.take_together({0, 1, 2}) == SLOTS
    rings.write(0, ALIGNMENT + 1)
    rings.take_one(0)
    for number in range(8):
        for place in range(SLOTS):
            rings.write(place, SIZE)
        # Behind three blocks and two records, the first ring has one block left before its end.
        at_gap = number == 2
        assert rings.take_together({0, 1, 2}) == SLOTS - at_gap, number
        if at_gap:
            rings.take_one(0)


@pytest.mark.parametrize("word", [SlotWords.PARTS_END, SlotWords.PARTS_TAKEN])
@pytest.mark.parametrize("more", [1, 1 << 20, (1 << 64) - 64])
def test_a_spoilt_position_is_left_to_the_other_reader(word: int, more: int) -> None:
    rings = Rings()
    for place in range(SLOTS):
        rings.write(place, SIZE)
    first = rings.lane.first_word + rings.slots[1] * SlotWords.SIZE
    at = first + word
    rings.lane.words[at] = (rings.lane.words[at] + more) % (1 << 64)
    found, parts = rings.reader.read()
    # What lies by a block or more beyond, or before, is no position of a part.
    assert found.tolist() in ([True, False, True], [True, True, True])
    assert (more == 1) >= bool(found[1])
    assert len(parts) == found.sum()


def test_a_spoilt_size_is_left_to_the_other_reader() -> None:
    rings = Rings()
    for place in range(SLOTS):
        rings.write(place, SIZE)
    for size in (0, SIZE + 1, 1 << 40, (1 << 64) - 1):
        rings.lane.words[rings.lane.result_offset[rings.slots[0]] // WORD] = size
        found, parts = rings.reader.read()
        assert found.tolist() == [False, True, True]
        assert parts.shape == (2, SIZE)


def test_a_size_at_the_end_of_a_ring_is_of_no_part() -> None:
    rings = Rings()
    lane, slot = rings.lane, rings.slots[0]
    for place in range(SLOTS):
        rings.write(place, SIZE)
    first = lane.first_word + slot * SlotWords.SIZE
    last = RESULT_BYTES - ALIGNMENT
    lane.words[first + SlotWords.PARTS_TAKEN] = lane.words[first + SlotWords.PARTS_FROM] + last
    end = lane.words[first + SlotWords.PARTS_TAKEN] + 2 * ALIGNMENT
    lane.words[first + SlotWords.PARTS_END] = end
    # A worker has spoilt it: the part would have its bytes in the memory of another.
    lane.words[(lane.result_offset[slot] + last) // WORD] = SIZE
    found, _ = rings.reader.read()
    assert found.tolist() == [False, True, True]


def test_a_slot_without_memory_has_no_part() -> None:
    rings = Rings()
    rings.lane.result_capacity[rings.slots[0]] = 0
    for place in range(SLOTS):
        rings.write(place, SIZE)
    found, _ = ManyPartsReader(rings.lane, rings.slots, SIZE).read()
    assert found.tolist() == [False, True, True]
