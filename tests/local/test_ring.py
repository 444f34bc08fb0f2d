"""A ring of words, one process on both ends."""

import random
from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.descriptors import RingWords
from ringbatch.shm.layout import WORD, ring_size
from ringbatch.shm.ring import Consumer, CorruptRingError, Inbox, Producer

FIRST = 32
LARGEST = (1 << 64) - 1


class Ring:
    """Both ends of a ring that lies between guards."""

    def __init__(self, capacity: int, start: int = 0) -> None:
        self.words = memoryview(bytearray(WORD * (FIRST + ring_size(capacity) + FIRST))).cast("Q")
        for number in range(len(self.words)):
            self.words[number] = LARGEST
        self.tail = FIRST + RingWords.TAIL
        self.head = FIRST + RingWords.HEAD
        self.first = FIRST + RingWords.ITEMS
        self.words[self.tail] = self.words[self.head] = start
        self.capacity = capacity
        self.producer = Producer(self.words, FIRST, capacity)
        self.consumer = Consumer(self.words, FIRST, capacity)

    def outside(self) -> list[int]:
        """Return every word that is neither a control word nor an item."""
        own = {self.tail, self.head, *range(self.first, self.first + self.capacity)}
        return [word for number, word in enumerate(self.words.tolist()) if number not in own]


capacities = st.integers(0, 5).map(lambda power: 1 << power)
starts = st.one_of(st.integers(0, 200), st.just((1 << 63) - 3))


def test_an_empty_ring_gives_nothing() -> None:
    assert Ring(4).consumer.take() == []


def test_items_come_out_once_in_the_order_they_went_in() -> None:
    ring = Ring(4)
    assert ring.producer.offer([11, 12])
    assert ring.producer.offer([13])
    assert ring.consumer.take() == [11, 12, 13]
    assert ring.consumer.take() == []


@given(capacities, starts, st.data())
def test_a_full_ring_returns_false_and_moves_nothing(
    capacity: int, start: int, data: st.DataObject
) -> None:
    ring = Ring(capacity, start)
    items = data.draw(st.lists(st.integers(0, LARGEST), max_size=capacity))
    assert ring.producer.offer(items)
    before = ring.words.tolist()
    too_many = [7] * (capacity - len(items) + 1)
    assert not ring.producer.offer(too_many)
    assert ring.words.tolist() == before
    assert ring.producer.position == start + len(items)
    assert ring.consumer.take() == items


@given(capacities, starts)
def test_a_full_ring_can_be_filled_again_once_it_was_emptied(capacity: int, start: int) -> None:
    ring = Ring(capacity, start)
    for lap in range(3):
        items = list(range(lap * capacity, (lap + 1) * capacity))
        assert ring.producer.offer(items)
        assert not ring.producer.offer([1])
        assert ring.consumer.take() == items


@pytest.mark.parametrize("start", range(8))
def test_wrapped_items_come_out_in_order(start: int) -> None:
    ring = Ring(8, start)
    assert ring.producer.offer([1, 2, 3, 4, 5, 6, 7])
    assert ring.consumer.take() == [1, 2, 3, 4, 5, 6, 7]
    assert ring.words[ring.tail] == ring.words[ring.head] == start + 7


def test_an_offer_of_nothing_publishes_nothing() -> None:
    ring = Ring(2)
    before = ring.words.tolist()
    assert ring.producer.offer([])
    assert ring.words.tolist() == before


def test_a_taken_word_may_be_overwritten() -> None:
    ring = Ring(2)
    ring.producer.offer([1, 2])
    taken = ring.consumer.take()
    ring.producer.offer([3, 4])
    assert taken == [1, 2]


@given(capacities, starts, st.lists(st.integers(1, 4), max_size=20))
def test_peeked_items_keep_their_place_until_they_are_released(
    capacity: int, start: int, releases: list[int]
) -> None:
    ring = Ring(capacity, start)
    held: deque[int] = deque()
    for number, count in enumerate(releases):
        while ring.producer.offer([number]):
            held.append(number)
        assert len(held) == capacity
        assert ring.consumer.peek() == list(held) == ring.consumer.peek()
        released = min(count, capacity)
        ring.consumer.release(released)
        for _ in range(released):
            held.popleft()
        assert Consumer(ring.words, FIRST, capacity).peek() == list(held)
    assert ring.consumer.take() == list(held)


class Looks:
    """Words that count how often one of them is loaded."""

    def __init__(self, words: memoryview, number: int) -> None:
        self._words = words
        self._number = number
        self.count = 0

    def __getitem__(self, index: int) -> int:
        self.count += index == self._number
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._words[index] = value


def test_a_producer_looks_at_head_only_if_its_last_look_leaves_no_room() -> None:
    ring = Ring(4)
    looks = Looks(ring.words, ring.head)
    producer = Producer(cast(memoryview, looks), FIRST, 4)
    found = []
    for item in range(12):
        assert producer.offer([item])
        found += ring.consumer.take()
    assert found == [*range(12)]
    assert looks.count == 3


@pytest.mark.parametrize("lie", [5, 1 << 40, LARGEST])
def test_after_a_consumer_that_lied_the_next_one_is_written_nothing_over(lie: int) -> None:
    ring = Ring(4, start=2)
    assert ring.producer.offer([1, 2])
    ring.words[ring.head] = lie
    assert ring.producer.offer([3, 4, 5])
    heir = Consumer(ring.words, FIRST, 4)
    heir.skip()
    assert ring.producer.offer([6, 7, 8, 9])
    assert not ring.producer.offer([10])
    assert heir.take() == [6, 7, 8, 9]


def test_a_new_end_goes_on_where_the_old_one_stopped() -> None:
    ring = Ring(4)
    ring.producer.offer([1, 2, 3])
    assert ring.consumer.take() == [1, 2, 3]
    ring.producer.offer([4, 5])
    producer = Producer(ring.words, FIRST, 4)
    assert producer.offer([6, 7])
    assert not producer.offer([8])
    assert Consumer(ring.words, FIRST, 4).take() == [4, 5, 6, 7]


@pytest.mark.parametrize("tail", [4, 10 + 5, 9, LARGEST, 1 << 63])
def test_an_impossible_tail_is_an_error_and_moves_nothing(tail: int) -> None:
    ring = Ring(4, start=10)
    ring.words[ring.tail] = tail
    before = ring.words.tolist()
    for _ in range(2):
        with pytest.raises(CorruptRingError, match=f"tail {tail} against head 10, capacity 4"):
            ring.consumer.take()
    assert ring.words.tolist() == before


@pytest.mark.parametrize("tail", [0, 10 + 4, 10 + 5, LARGEST])
def test_skip_forgets_published_items_and_the_ring_goes_on(tail: int) -> None:
    ring = Ring(4, start=10)
    ring.words[ring.tail] = tail
    ring.consumer.skip()
    assert ring.consumer.take() == []
    assert ring.words[ring.head] == tail
    ring.words[ring.tail] = 20
    ring.consumer.skip()
    producer = Producer(ring.words, FIRST, 4)
    assert producer.offer([21, 22])
    assert ring.consumer.take() == [21, 22]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_100000_random_operations_are_those_of_a_queue(seed: int) -> None:
    chance = random.Random(seed)
    capacity = 1 << chance.randint(0, 5)
    ring = Ring(capacity, start=chance.randrange(1 << 62))
    guards = ring.outside()
    queue: deque[int] = deque()
    refused = 0
    for number in range(100_000):
        operation = chance.randrange(20)
        if operation < 14:
            items = [number << 8 | i for i in range(chance.randint(0, min(20, capacity)))]
            fits = ring.producer.offer(items)
            assert fits == (len(queue) + len(items) <= capacity)
            if fits:
                queue.extend(items)
            refused += not fits
        elif operation < 18:
            assert ring.consumer.take() == list(queue)
            queue.clear()
        elif operation == 18:
            ring.producer = Producer(ring.words, FIRST, capacity)
        else:
            ring.consumer = Consumer(ring.words, FIRST, capacity)
    assert refused
    assert ring.outside() == guards


class Rings:
    """Several rings side by side, their producers and the one who reads them."""

    def __init__(self, count: int, capacity: int, gap: int = 0, start: int = 0) -> None:
        self.stride = ring_size(capacity) + gap
        self.words = memoryview(bytearray(WORD * (FIRST + count * self.stride))).cast("Q")
        self.offsets = [FIRST + number * self.stride for number in range(count)]
        for offset in self.offsets:
            for word in (RingWords.TAIL, RingWords.HEAD):
                self.words[offset + word] = start
        self.producers = [Producer(self.words, offset, capacity) for offset in self.offsets]
        self.inbox = Inbox(self.words, FIRST, self.stride, count, capacity)

    def corrupt(self, number: int) -> None:
        self.words[self.offsets[number] + RingWords.TAIL] = 1 << 62


@pytest.mark.parametrize("gap", [0, 32])
def test_an_inbox_gives_the_items_of_each_ring_once_and_in_order(gap: int) -> None:
    rings = Rings(3, 4, gap, start=3)
    assert (rings.inbox.has_items, rings.inbox.take()) == (False, [])
    rings.producers[2].offer([21, 22])
    rings.producers[0].offer([1])
    assert rings.inbox.has_items
    assert rings.inbox.take() == [(0, [1]), (2, [21, 22])]
    assert (rings.inbox.has_items, rings.inbox.take()) == (False, [])
    rings.producers[2].offer([23, 24, 25, 26])
    assert rings.inbox.take() == [(2, [23, 24, 25, 26])]


def test_an_inbox_skips_a_corrupt_ring_and_says_so_and_reads_the_others() -> None:
    rings = Rings(3, 4)
    rings.producers[0].offer([1])
    rings.producers[1].offer([11])
    rings.corrupt(1)
    rings.producers[2].offer([21])
    assert rings.inbox.take() == [(0, [1]), (1, None), (2, [21])]
    assert rings.inbox.take() == []
    assert Producer(rings.words, rings.offsets[1], 4).offer([12])
    assert rings.inbox.take() == [(1, [12])]


def test_an_inbox_forgets_skipped_items_and_goes_on_behind_its_predecessor() -> None:
    rings = Rings(2, 4)
    rings.producers[0].offer([1])
    rings.corrupt(1)
    rings.inbox.skip()
    assert (rings.inbox.has_items, rings.inbox.take()) == (False, [])
    rings.producers[0].offer([2])
    assert Inbox(rings.words, FIRST, rings.stride, 2, 4).take() == [(0, [2])]


def test_of_very_many_rings_those_that_hold_anything_are_found() -> None:
    count = 1_000
    rings = Rings(count, 1)
    for held in ([0], [count - 1], [499, 500], [*range(0, count, 7)], [*range(count)]):
        for ring in held:
            assert rings.producers[ring].offer([ring])
        assert rings.inbox.take() == [(ring, [ring]) for ring in held]
        assert not rings.inbox.has_items


@pytest.mark.parametrize(("seed", "most"), [(1, 6), (2, 6), (3, 100)])
def test_10000_random_operations_are_those_of_several_queues(seed: int, most: int) -> None:
    chance = random.Random(seed)
    count, capacity = chance.randint(1, most), 1 << chance.randint(0, 4)
    rings = Rings(count, capacity, start=chance.randrange(1 << 62))
    queues: list[list[int]] = [[] for _ in range(count)]
    for number in range(10_000):
        if chance.randrange(4):
            ring = chance.randrange(count)
            items = [number << 8 | i for i in range(chance.randint(0, min(20, capacity)))]
            if rings.producers[ring].offer(items):
                queues[ring] += items
            continue
        assert rings.inbox.has_items == any(queues)
        some = chance.sample(range(count), chance.randint(0, count))
        assert rings.inbox.waits_in(some) == any(queues[ring] for ring in some)
        if chance.randrange(2):
            assert rings.inbox.take_from(some) == [(r, queues[r]) for r in some if queues[r]]
        else:
            some = [*range(count)]
            assert rings.inbox.take() == [(r, queues[r]) for r in some if queues[r]]
        for ring in some:
            queues[ring] = []
