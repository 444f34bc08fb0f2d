"""Parts of an answer: a ring in a slot's result memory, between a worker and a frontend.

A frontend that wants an answer in parts calls `PartReader.open` before it publishes the request.
The worker then writes each part into the ring, and posts the reference with PART. Its answer comes
behind the last part, and has no result of its own. A request of which a part is out is never run
again: its client has begun to read.

Four words of the slot describe the ring. PARTS_OF is the reference of the last request that wants
parts, so that no other request is taken for one. Positions count bytes and only grow, also from one
request to the next. PARTS_FROM is where the request's first part stands, PARTS_TAKEN how far the
frontend has read, and PARTS_END how far the worker has written:

    position - PARTS_FROM, modulo the ring's bytes    offset in the result memory
    PARTS_TAKEN = PARTS_END                           nothing to read
    PARTS_FROM < PARTS_END                            a part is out

A record is its size, in a block of ALIGNMENT bytes, and the part's own bytes, up to the next
multiple. No record goes over the end: one that has no room there begins at the start, and a record
of size SKIPPED fills the gap. So a part that takes up to half of the ring always finds room once
all before it are read.
"""

from typing import Final, NamedTuple

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, WORD, aligned
from ringbatch.shm.memory_order import acquiring, releasing

SKIPPED: Final = (1 << 64) - 1
"""Size of the record that fills the gap before the ring's end."""
LEAST_BYTES: Final = 1 << 14
"""Result memory for parts: a worker goes on while a frontend is busy with something else."""
_PARTS_AHEAD: Final = 4
_SLOT_WORDS: Final = SlotWords.SIZE
_PARTS_OF: Final = SlotWords.PARTS_OF
_PARTS_FROM: Final = SlotWords.PARTS_FROM
_PARTS_TAKEN: Final = SlotWords.PARTS_TAKEN
_PARTS_END: Final = SlotWords.PARTS_END


class CorruptPartsError(Exception):
    """The words of a ring of parts, or a size in it, are impossible: a worker has spoilt them."""


def ring_bytes(result_bytes: int) -> int:
    """Return the bytes of the ring in a result memory of that many bytes."""
    return result_bytes // ALIGNMENT * ALIGNMENT


def bytes_for(part_bytes: int) -> int:
    """Return the result memory in which a part of that size always finds room."""
    return 2 * (ALIGNMENT + aligned(part_bytes))


def bytes_for_several(part_bytes: int) -> int:
    """Return the result memory to claim for parts of that size, so that a worker can go on."""
    return max(_PARTS_AHEAD * bytes_for(part_bytes), LEAST_BYTES)


class Room(NamedTuple):
    """Room for the next part.

    Attributes:
        start: where its bytes belong, from the start of the segment.
        size: the most bytes it may have.
    """

    start: int
    size: int


class PartWriter:
    """Writing end, for the worker that runs the request.

    Args:
        memory: the segment's.
        words: of the segment.
        first: the first word of the request's slot.
        start: where the result memory begins, in bytes from the start of the segment.
        result_bytes: of that memory.
    """

    __slots__ = (
        "_end",
        "_first",
        "_from",
        "_limit",
        "_load_acquire",
        "_memory",
        "_ring",
        "_start",
        "_store_release",
        "_words",
    )

    def __init__(
        self, memory: memoryview, words: memoryview, first: int, start: int, result_bytes: int
    ) -> None:
        self._memory = memory
        self._words = words
        self._load_acquire = acquiring(words)
        self._store_release = releasing(words)
        self._first = first
        self._start = start
        self._ring = ring_bytes(result_bytes)
        self._from: int = words[first + _PARTS_FROM]
        self._end: int = words[first + _PARTS_END]
        self._limit = 0
        """The position up to which this end knows of room, see `shm.ring`."""

    @property
    def part_is_out(self) -> bool:
        """True if a part was written."""
        return self._end != self._from

    @property
    def deadline_ns(self) -> int:
        """The request's deadline, or the earlier one at which its frontend has given it up."""
        found: int = self._words[self._first + SlotWords.DEADLINE_NS]
        return found

    def first_room(self) -> Room | None:
        """Return the room that the next part has before the ring's end; None if there is none."""
        ring, free = self._ring, self._free()
        if free < ALIGNMENT:
            return None
        at = (self._end - self._from) % ring
        return Room(self._start + at + ALIGNMENT, min(ring - at, free) - ALIGNMENT)

    def write(self, part: bytes) -> bool:
        """Write a part, and let the frontend see it; return False if there is no room for it."""
        size = len(part)
        needed = ALIGNMENT + aligned(size)
        end, start, ring = self._end, self._start, self._ring
        if not ring:
            return False
        at = (end - self._from) % ring
        before = ring - at
        gap = before if needed > before else 0
        if gap + needed > self._limit - end and gap + needed > self._free():
            return False
        if gap:
            self._words[(start + at) // WORD] = SKIPPED
            end += gap
            at = 0
        begin = start + at + ALIGNMENT
        self._memory[begin : begin + size] = part
        self._publish(begin, size, end + needed)
        return True

    def _publish(self, begin: int, size: int, end: int) -> None:
        """Let the frontend see the part whose bytes begin there, and which ends the ring there."""
        self._words[(begin - ALIGNMENT) // WORD] = size
        self._end = self._store_release[self._first + _PARTS_END] = end

    def _free(self) -> int:
        """Return the bytes that are free; -1 if the frontend has spoilt how far it has read."""
        taken: int = self._load_acquire[self._first + _PARTS_TAKEN]
        if not 0 <= self._end - taken <= self._ring:
            return -1
        self._limit = taken + self._ring
        return self._limit - self._end


class PartReader:
    """Reading end, for the owner of a lane."""

    __slots__ = ("_first_word", "_lane", "_load_acquire", "_store_release", "_words")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._first_word = lane.first_word
        self._words = lane.words
        self._load_acquire = acquiring(lane.words)
        self._store_release = releasing(lane.words)

    def open(self, slot: int) -> None:
        """Ask for parts in the answer to the request that is published next in a claimed slot."""
        words, first = self._words, self._first(slot)
        words[first + _PARTS_FROM] = words[first + _PARTS_TAKEN] = words[first + _PARTS_END]
        words[first + _PARTS_OF] = self._lane.next_reference(slot)

    def next(self, slot: int) -> tuple[int, int] | None:
        """Return the next part that stands in a slot: its start and size; None if there is none.

        It stays there until `take`.

        Raises:
            CorruptPartsError: the worker has written what makes no sense.
        """
        words, first = self._words, self._first_word + slot * _SLOT_WORDS
        end, taken = self._load_acquire[first + _PARTS_END], words[first + _PARTS_TAKEN]
        if end == taken:
            return None
        lane = self._lane
        start, ring = lane.result_offset[slot], ring_bytes(lane.result_capacity[slot])
        if not ring:
            raise CorruptPartsError("a part in a slot without result memory")
        offset = (taken - words[first + _PARTS_FROM]) % ring
        size = words[(start + offset) // WORD]
        if size == SKIPPED:
            taken += ring - offset
            self._store_release[first + _PARTS_TAKEN] = taken
            if end == taken:
                return None
            offset = (taken - words[first + _PARTS_FROM]) % ring
            size = words[(start + offset) // WORD]
        if not taken < end <= taken + ring or not 0 <= size <= ring - offset - ALIGNMENT:
            raise CorruptPartsError(f"a part of {size} bytes at {taken} of {end}")
        return start + offset + ALIGNMENT, size

    def batch(self, slot: int) -> int:
        """Return the number of the batch in which the parts of a slot are made."""
        number: int = self._words[self._first(slot) + SlotWords.BATCH]
        return number

    def take(self, slot: int, size: int) -> bool:
        """Free the room of the part that `next` returned; return whether there are others."""
        first = self._first_word + slot * _SLOT_WORDS
        taken = self._words[first + _PARTS_TAKEN] + ALIGNMENT + aligned(size)
        self._store_release[first + _PARTS_TAKEN] = taken
        others: bool = self._load_acquire[first + _PARTS_END] != taken
        return others

    def _first(self, slot: int) -> int:
        return self._first_word + slot * _SLOT_WORDS


def move_deadline(lane: Lane, slot: int, deadline_ns: int) -> None:
    """Let the engine see that a request is given up at a deadline; `Lane.cancel` must follow.

    Args:
        lane: of the request.
        slot: the same.
        deadline_ns: on the monotonic clock, before the one that was published.
    """
    lane.words[lane.first_word + slot * _SLOT_WORDS + SlotWords.DEADLINE_NS] = deadline_ns


def wants_parts(words: memoryview, first: int, ref: int) -> bool:
    """Return whether a request wants its answer in parts.

    Args:
        words: of the segment.
        first: the first word of its slot.
        ref: its reference.
    """
    found: bool = words[first + _PARTS_OF] == ref
    return found


def part_is_out(words: memoryview, first: int, ref: int) -> bool:
    """Return whether a part of a request's answer is out; arguments as for `wants_parts`."""
    found: bool = wants_parts(words, first, ref) and (
        words[first + _PARTS_END] != words[first + _PARTS_FROM]
    )
    return found
