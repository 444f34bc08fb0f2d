"""Rings of 8-byte words with one producer and one consumer, and no lock.

Each side keeps its own position in private memory and publishes it with one aligned 8-byte
store: the producer its TAIL, after the words it covers; the consumer its HEAD, after it has copied
them out. Neither ever writes the other's word, so no compare-and-swap is needed. The order of
stores is the processor's (total store order on x86-64, see ringbatch.shm.platform), and
`memoryview` items of format ``Q`` are stored and loaded whole.

After L. Lamport, "Proving the Correctness of Multiprocess Programs", 1977, section 3: a bounded
buffer of one producer and one consumer needs no mutual exclusion.
"""

from collections.abc import Sequence

from ringbatch.shm.layout import RING_HEAD, RING_TAIL, RING_WORDS, WORD, ring_size


class CorruptRingError(Exception):
    """The other side's position is impossible; it is broken or hostile."""


class Producer:
    """The writing end.

    Args:
        words: the segment as a memoryview of format ``Q``.
        offset: where the ring starts, in bytes.
        capacity: how many words it holds, a power of two.
    """

    __slots__ = ("_capacity", "_first", "_head", "_tail", "_words", "position")

    def __init__(self, words: memoryview, offset: int, capacity: int) -> None:
        self._words = words
        self._tail = (offset + RING_TAIL) // WORD
        self._head = (offset + RING_HEAD) // WORD
        self._first = (offset + RING_WORDS) // WORD
        self._capacity = capacity
        self.position: int = words[self._tail]

    def offer(self, items: Sequence[int]) -> bool:
        """Publish all of `items` at once; False, and nothing moved, where they do not fit."""
        words, position, first = self._words, self.position, self._first
        end = position + len(items)
        if end - words[self._head] > self._capacity:
            return False
        mask = self._capacity - 1
        for number, item in enumerate(items, position):
            words[first + (number & mask)] = item
        self.position = words[self._tail] = end
        return True

    @property
    def waiting(self) -> int:
        """Words published that the consumer has not taken yet, as far as its position is true."""
        return self.position - int(self._words[self._head])


class Consumer:
    """The reading end; the arguments are those of `Producer`."""

    __slots__ = ("_capacity", "_first", "_head", "_tail", "_words", "position")

    def __init__(self, words: memoryview, offset: int, capacity: int) -> None:
        self._words = words
        self._tail = (offset + RING_TAIL) // WORD
        self._head = (offset + RING_HEAD) // WORD
        self._first = (offset + RING_WORDS) // WORD
        self._capacity = capacity
        self.position: int = words[self._head]

    def take(self) -> list[int]:
        """All words published so far, oldest first; their places are free again afterwards.

        Raises:
            CorruptRingError: where the producer claims to have published more than fits.
        """
        return self.take_up_to(self._words[self._tail])

    def take_up_to(self, end: int) -> list[int]:
        """`take`, where the producer's position was read already."""
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
        self.position = words[self._head] = end
        return items

    @property
    def waiting(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._words[self._tail] != self.position)

    def skip(self) -> None:
        """Forget everything published so far, whatever it is; the way out of `CorruptRingError`."""
        self.position = self._words[self._head] = self._words[self._tail]


class Inbox:
    """Rings that lie side by side and have one consumer, which looks at all of them in one go.

    Args:
        words: the segment as a memoryview of format ``Q``.
        offset: where the first ring starts, in bytes.
        count: how many there are.
        capacity: how many words each holds, a power of two.

    Attributes:
        rings: the reading end of each.
    """

    __slots__ = ("_positions", "_tails", "_words", "rings")

    def __init__(self, words: memoryview, offset: int, count: int, capacity: int) -> None:
        stride = ring_size(capacity)
        self.rings = [Consumer(words, offset + n * stride, capacity) for n in range(count)]
        self._words = words
        first = (offset + RING_TAIL) // WORD
        self._tails = slice(first, first + count * stride // WORD, stride // WORD)
        self._positions = [ring.position for ring in self.rings]

    @property
    def waiting(self) -> bool:
        """Whether `take` would find something."""
        return bool(self._words[self._tails].tolist() != self._positions)

    def take(self) -> list[tuple[int, list[int]]]:
        """The words published so far in each ring that has some, with the number of the ring.

        A ring whose producer claims the impossible is emptied, and nothing is returned as its
        words: an empty list.
        """
        tails = self._words[self._tails].tolist()
        positions = self._positions
        if tails == positions:
            return []
        found = []
        for number, end in enumerate(tails):
            if end != positions[number]:
                ring = self.rings[number]
                try:
                    items = ring.take_up_to(end)
                except CorruptRingError:
                    ring.skip()
                    items = []
                positions[number] = ring.position
                found.append((number, items))
        return found
