"""Rows that a model in steps has begun: the slot of each says which worker holds it.

A worker of any other model keeps a batch in its task ring until the batch is answered, so that a
collector that takes another's place finds it there. Rows of a model in steps end in any order, and
a ring gives its places back in order. So the worker stores JOINED in each slot before it takes the
task out of its ring:

    JOINED    the generation in the request's reference, and in place of the slot the worker

BATCH, BATCH_ROWS, REASON and DISPATCHED_NS, which the worker stores before, say what batch the task
was. A process that looks for what a worker holds reads its ring first, then the slots: a task is
in one of them, or in both.
"""

from collections.abc import Iterator
from typing import Final

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.layout import WORD
from ringbatch.shm.memory_order import acquiring
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import SLOT_BITS, SLOT_MASK, Reason, is_open, reference, slot_of
from ringbatch.shm.slot_structs import BATCH_DETAILS

_JOINED: Final = SlotWords.JOINED
_REASONS: Final = tuple(Reason)

Joined = tuple[BatchMark, list[int]]
"""Batch of rows that a worker has joined: its mark, and references to its open requests."""


class JoinedRows:
    """Reader and writer of JOINED in the slots of all lanes."""

    def __init__(self, segment: Segment) -> None:
        layout = segment.layout
        self._memory = segment.memory
        self._words = segment.words
        self._load_acquire = acquiring(segment.words)
        self._first_word = first = layout.slots_word
        end = first + layout.lanes * layout.slots * SlotWords.SIZE
        self._every = slice(first + _JOINED, end, SlotWords.SIZE)

    def join(self, ref: int, worker: int, mark: BatchMark) -> None:
        """Store that a worker holds a request, whose task it is about to take out of its ring.

        Args:
            ref: the request, in a slot that exists.
            worker: the number.
            mark: of the request's batch.
        """
        first = self._first(slot_of(ref))
        start = (first + SlotWords.RESULT_BYTES) * WORD
        BATCH_DETAILS.pack_into(self._memory, start, 0, mark.batch, mark.rows, mark.reason)
        self._words[first + SlotWords.DISPATCHED_NS] = mark.dispatched_ns
        self._words[first + _JOINED] = ref >> SLOT_BITS << SLOT_BITS | worker

    def by_worker(self) -> dict[int, list[Joined]]:
        """Return the open requests that workers have joined, by worker and batch."""
        found: dict[int, dict[int, Joined]] = {}
        for slot, joined in self._open():
            batches = found.setdefault(joined & SLOT_MASK, {})
            mark = self._mark(self._first(slot))
            # An answer stores other rows and reasons before it is one.
            _, references = batches.setdefault(mark.batch, (mark, []))
            references.append(reference(joined >> SLOT_BITS, slot))
        return {worker: [*batches.values()] for worker, batches in found.items()}

    def forget(self, worker: int) -> None:
        """Forget the rows of a dead worker, so that the next worker of its number holds none.

        Only open requests are forgotten. No other worker holds them, so none stores JOINED. In a
        slot whose request is answered, another may be about to hold the next.
        """
        for slot, joined in self._open():
            if joined & SLOT_MASK == worker:
                self._words[self._first(slot) + _JOINED] = 0

    def _open(self) -> Iterator[tuple[int, int]]:
        """Yield the slots of open requests that a worker has joined, and JOINED of each."""
        load_acquire = self._load_acquire
        for slot, joined in enumerate(self._words[self._every].tolist()):
            if joined:
                first, ref = self._first(slot), reference(joined >> SLOT_BITS, slot)
                control = load_acquire[first + SlotWords.CONTROL]
                if is_open(ref, control, load_acquire[first + SlotWords.DONE]):
                    yield slot, joined

    def _mark(self, first: int) -> BatchMark:
        words = self._words
        reason = words[first + SlotWords.REASON]
        return BatchMark(
            words[first + SlotWords.BATCH],
            words[first + SlotWords.BATCH_ROWS],
            _REASONS[reason % len(_REASONS)],
            words[first + SlotWords.DISPATCHED_NS],
        )

    def _first(self, slot: int) -> int:
        return self._first_word + slot * SlotWords.SIZE
