"""Rings of 8-byte words with one producer and one consumer, and no lock.

Each side keeps its own position in private memory and publishes it with one aligned 8-byte
store: the producer its TAIL, after the words it covers; the consumer its HEAD, after it has copied
them out. Neither ever writes the other's word, so no compare-and-swap is needed. `memoryview` items
of format ``Q`` are stored and loaded whole, those of a slice in any order among themselves.

Names say what an access is for, here and in lanes and engine slots: `store_release` publishes every
store before it, and a reader that sees it through `load_acquire` sees those too. Accesses without
an order of their own go through `words`. `ringbatch.shm.memory_order` has both.

A producer looks at the consumer's HEAD only if what it saw there last leaves no room: HEAD only
grows, so an old one can hide room and never invent it. In return the consumer keeps the cache line
that it stores to.

After L. Lamport, "Proving the Correctness of Multiprocess Programs", 1977, section 3: a bounded
buffer of one producer and one consumer needs no mutual exclusion; and J. Giacomoni et al. and
Agrona's OneToOneRingBuffer, which keep the other side's position.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import ne
from typing import Final

from ringbatch.shm.descriptors import RingWords
from ringbatch.shm.memory_order import acquiring, releasing

_RUN: Final = 8
"""Least number of words that are stored sooner together than one by one."""
_HALVED: Final = 16
"""Most rings to compare one by one; a search among more goes by halves."""


class CorruptRingError(Exception):
    """The other side's position is impossible; it is broken or hostile."""


class _End:
    """Base of both ends of a ring.

    Args:
        words: the segment as a memoryview of format ``Q``.
        first: the first word of the ring.
        capacity: how many words it holds, a power of two.
        own: the number of this end's word in the ring.
    """

    __slots__ = (
        "_capacity",
        "_first",
        "_head",
        "_load_acquire",
        "_store_release",
        "_tail",
        "_words",
        "position",
    )

    def __init__(self, words: memoryview, first: int, capacity: int, own: int) -> None:
        self._words = words
        self._load_acquire = acquiring(words)
        self._store_release = releasing(words)
        self._tail = first + RingWords.TAIL
        self._head = first + RingWords.HEAD
        self._first = first + RingWords.ITEMS
        self._capacity = capacity
        # A new collector reads where a living worker stands, and then the slots.
        self.position: int = self._load_acquire[first + own]


class Producer(_End):
    """The writing end; the arguments are those of `_End`."""

    __slots__ = ("_limit",)

    def __init__(self, words: memoryview, first: int, capacity: int) -> None:
        super().__init__(words, first, capacity, RingWords.TAIL)
        self._limit = self.position
        """The position up to which there is room, as far as this end knows."""

    def offer(self, items: Sequence[int]) -> bool:
        """Publish all of `items` at once; if they do not fit, return False and move nothing."""
        words, position, first = self._words, self.position, self._first
        count = len(items)
        end = position + count
        if end > self._limit:
            # A HEAD beyond the published words is a lie. The next owner of the ring is honest, and
            # must not lose capacity by it.
            self._limit = min(self._load_acquire[self._head], position) + self._capacity
            if end > self._limit:
                return False
        mask = self._capacity - 1
        if count < _RUN:
            for number, item in enumerate(items, position):
                words[first + (number & mask)] = item
        else:
            run = array("Q", items)
            start = position & mask
            unwrapped = min(count, self._capacity - start)
            words[first + start : first + start + unwrapped] = run[:unwrapped]
            words[first : first + count - unwrapped] = run[unwrapped:]
        self.position = self._store_release[self._tail] = end
        return True

    @property
    def backlog(self) -> int:
        """Words published that the consumer has not taken yet, as far as its position is true."""
        return self.position - int(self._load_acquire[self._head])


class Consumer(_End):
    """The reading end; the arguments are those of `_End`."""

    __slots__ = ()

    def __init__(self, words: memoryview, first: int, capacity: int) -> None:
        super().__init__(words, first, capacity, RingWords.HEAD)

    def take(self) -> list[int]:
        """Return all words published so far, oldest first, and free their places.

        Raises:
            CorruptRingError: if the producer claims to have published more than fits.
        """
        end = self._load_acquire[self._tail]
        items = self.peek_up_to(end)
        if items:
            self.position = self._store_release[self._head] = end
        return items

    def take_or_skip(self, end: int) -> list[int] | None:
        """Take the words up to the producer's position, which differs from this side's.

        If that position is impossible, forget everything and return None.
        """
        try:
            items = self.peek_up_to(end)
        except CorruptRingError:
            self.skip()
            return None
        self.position = self._store_release[self._head] = end
        return items

    def peek(self) -> list[int]:
        """As `take`, but the words keep their places until they are released."""
        return self.peek_up_to(self._load_acquire[self._tail])

    def peek_up_to(self, end: int) -> list[int]:
        """Peek as `peek` does, up to a position of the producer that was read already."""
        words, position = self._words, self.position
        if end == position:
            return []
        capacity = self._capacity
        if not 0 < end - position <= capacity:
            raise CorruptRingError(f"tail {end} against head {position}, capacity {capacity}")
        start = position & (capacity - 1)
        first = self._first + start
        stop = first + end - position
        wrap = stop - self._first - capacity
        if wrap <= 0:
            items: list[int] = words[first:stop].tolist()
        else:
            items = words[first : stop - wrap].tolist()
            items += words[self._first : self._first + wrap].tolist()
        return items

    def release(self, count: int) -> None:
        """Free the places of so many of the oldest words."""
        self.position = self._store_release[self._head] = self.position + count

    @property
    def has_items(self) -> bool:
        """True if `take` would return something."""
        return bool(self._load_acquire[self._tail] != self.position)

    def skip(self) -> None:
        """Skip all words published so far, sound or not; the way out of `CorruptRingError`."""
        self.position = self._store_release[self._head] = self._load_acquire[self._tail]


class Inbox:
    """Reading ends of several rings at equal distances; one look finds all of them empty.

    Args:
        words: the segment as a memoryview of format ``Q``.
        first: where the first ring starts.
        stride: words from the start of one ring to that of the next.
        count: how many there are.
        capacity: how many words each holds, a power of two.
    """

    __slots__ = ("_load_acquire", "_numbered", "_seen", "_stride", "_tail", "_tails")

    def __init__(
        self, words: memoryview, first: int, stride: int, count: int, capacity: int
    ) -> None:
        self._load_acquire = acquiring(words)
        self._numbered = [(i, Consumer(words, first + i * stride, capacity)) for i in range(count)]
        # Comparing two memoryviews creates no object for each word.
        self._seen = memoryview(array("Q", [consumer.position for _, consumer in self._numbered]))
        self._tail = tail = first + RingWords.TAIL
        self._stride = stride
        self._tails = slice(tail, tail + count * stride, stride)

    def take(self) -> list[tuple[int, list[int] | None]]:
        """Take the items of each ring that is not empty, with its index, in order.

        None stands for a ring whose producer claims to have published more than fits; its items are
        dropped, as by `Consumer.take`.
        """
        tails, seen = self._load_acquire[self._tails], self._seen
        if tails == seen:
            return []
        if len(self._numbered) > _HALVED:
            return self.take_from(self._changed(0, len(self._numbered)))
        found, ends = [], tails.tolist()
        for index, consumer in compress(self._numbered, map(ne, ends, seen)):
            found.append((index, consumer.take_or_skip(ends[index])))
            seen[index] = consumer.position
        return found

    def _changed(self, first: int, end: int) -> list[int]:
        """Return the non-empty rings of a range, by a search that skips empty halves."""
        stride = self._stride
        tails = self._load_acquire[self._tail + first * stride : self._tail + end * stride : stride]
        seen = self._seen[first:end]
        if tails == seen:
            return []
        if end - first <= _HALVED:
            return [*compress(range(first, end), map(ne, tails.tolist(), seen))]
        middle = (first + end) // 2
        return self._changed(first, middle) + self._changed(middle, end)

    def take_from(self, indices: Iterable[int]) -> list[tuple[int, list[int] | None]]:
        """Take from some of the rings, as `take` does from all, at the cost of one look each."""
        found, seen = [], self._seen
        for index in indices:
            end = self._load_acquire[self._tail + index * self._stride]
            if end != seen[index]:
                consumer = self._numbered[index][1]
                found.append((index, consumer.take_or_skip(end)))
                seen[index] = consumer.position
        return found

    @property
    def has_items(self) -> bool:
        """True if `take` would return something."""
        return bool(self._load_acquire[self._tails] != self._seen)

    def waits_in(self, indices: Iterable[int]) -> bool:
        """Return whether `take_from` would return any words."""
        load_acquire, seen = self._load_acquire, self._seen
        for index in indices:
            if load_acquire[self._tail + index * self._stride] != seen[index]:
                return True
        return False

    def skip(self) -> None:
        """Skip all words published so far, sound or not."""
        for index, consumer in self._numbered:
            consumer.skip()
            self._seen[index] = consumer.position
