"""Parts of many slots that are read together, see `ringbatch.shm.parts`.

Rows of one model have parts of one size, and a step makes one for each row. So a few array
operations read the parts of all of them. Whatever differs, such as a gap before the end of a ring,
is left to `PartReader`.
"""

from collections.abc import Sequence
from itertools import compress
from operator import not_
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, WORD, aligned
from ringbatch.shm.memory_order import acquire_fence, release_fence
from ringbatch.shm.parts import ring_bytes
from ringbatch.shm.strided_view import OFFSET_BITS, StridedView

FEW: Final = 8
"""Slots below which it is quicker to read the parts of each."""

T = TypeVar("T")


def with_parts(
    slots: list[int], owners: list[T], found: NDArray[np.bool_]
) -> tuple[list[int], list[T], list[int]]:
    """Return the slots in which a part stands, their owners, and the other slots.

    Args:
        slots, owners: in one order.
        found: whether a part stands there, as of `ManyPartsReader.read`.
    """
    flags = found.tolist()
    without = [*compress(slots, map(not_, flags))]
    return [*compress(slots, flags)], [*compress(owners, flags)], without


class ManyPartsReader:
    """Reading end of several slots, for parts of one size.

    Args:
        lane: of the slots.
        slots: of requests that want parts, for as long as this reads.
        size: of each part in bytes, at least 1.
        prefix: first bytes of each part; a part with others is left to `PartReader`.
    """

    def __init__(self, lane: Lane, slots: Sequence[int], size: int, prefix: bytes = b"") -> None:
        self._prefix: NDArray[np.uint8] = np.frombuffer(prefix, np.uint8)
        self._size = np.uint64(size)
        self._record = np.uint64(ALIGNMENT + aligned(size))
        self._items = StridedView(lane.memory).of(size)
        self._words: NDArray[np.uint64] = np.frombuffer(lane.words, np.uint64)
        first = lane.first_word + SlotWords.SIZE * np.array(slots, np.intp)
        self._end_words = first + SlotWords.PARTS_END
        self._taken_words = first + SlotWords.PARTS_TAKEN
        self._from = self._words[first + SlotWords.PARTS_FROM]
        starts = [lane.result_offset[slot] for slot in slots]
        self._starts = np.array(starts, np.uint64)
        rings = [ring_bytes(lane.result_capacity[slot]) for slot in slots]
        # A slot without memory has no part: at most one record that does not fit.
        self._rings = np.array([max(ring, ALIGNMENT) for ring in rings], np.uint64)
        self._ends = self._taken = self._from

    def read(self) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
        """Return in which slots such a part stands next, and these parts, shape [parts, size].

        They stand there until `take`.
        """
        words, rings, record = self._words, self._rings, self._record
        # Each word is loaded whole, as through memoryview.
        self._ends = ends = words[self._end_words]
        acquire_fence()
        self._taken = taken = words[self._taken_words]
        offsets = (taken - self._from) % rings
        places = self._starts + offsets
        written = ends - taken
        found = words[(places // np.uint64(WORD)).astype(np.intp)] == self._size
        found &= (written >= record) & (written <= rings) & (offsets + record <= rings)
        if not found.all():
            places = places[found]
        items = (places >> np.uint64(OFFSET_BITS)).astype(np.intp) + 1
        parts = self._items[items].view(np.uint8).reshape(len(items), int(self._size))
        if len(self._prefix):
            alike = (parts[:, : len(self._prefix)] == self._prefix).all(axis=1)
            if not alike.all():
                found[found] = alike
                parts = parts[alike]
        return found, parts

    def take(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Free the room of parts that `read` returned; return which slots had others behind them.

        Args:
            chosen: the slots whose parts it is about, among those in which one stood.
        """
        taken = self._taken[chosen] + self._record
        release_fence()
        self._words[self._taken_words[chosen]] = taken
        others: NDArray[np.bool_] = self._ends[chosen] != taken
        return others
