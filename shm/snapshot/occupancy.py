"""Requests and tasks under way at one instant, read from the slots and the rings.

Reading changes nothing; a word that changes meanwhile is seen as it was before or after.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import (
    TASK_HEADER_WORDS,
    TASK_WORDS,
    RingWords,
    SlotWords,
)
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS
from ringbatch.shm.slot_arrays import open_array

_NS: Final = 1e-9


class OfModel(NamedTuple):
    """Requests of one model.

    Attributes:
        in_flight: published and not answered.
        waiting: those of them that no worker has.
        oldest_s: since the oldest of these was accepted; 0 if none waits.
    """

    in_flight: int
    waiting: int
    oldest_s: float


class Occupancy:
    """The slots of all lanes, looked at once.

    Args:
        segment: attached.
        now_ns: the time on the monotonic clock.
    """

    def __init__(self, segment: Segment, now_ns: int) -> None:
        layout, size = segment.layout, SlotWords.SIZE
        words = np.frombuffer(segment.words, np.uint64)
        first = layout.slots_word
        slots = words[first : first + layout.lanes * layout.slots * size].reshape(-1, size)
        is_open = open_array(slots[:, SlotWords.CONTROL], slots[:, SlotWords.DONE])
        numbers = np.flatnonzero(is_open)
        found = slots[numbers]
        generations = found[:, SlotWords.CONTROL] >> np.uint64(FLAG_BITS)
        references = generations << np.uint64(SLOT_BITS) | numbers.astype(np.uint64)
        self._models = found[:, SlotWords.MODEL]
        self._accepted_ns = found[:, SlotWords.ACCEPTED_NS].astype(np.int64)
        self._waits = ~np.isin(references, _held(segment))
        self._now_ns = now_ns
        lanes = numbers // layout.slots
        self.slots: list[int] = np.bincount(lanes, minlength=layout.lanes).tolist()
        """Taken by requests that are not answered, by lane."""
        claimed = found[:, SlotWords.REQUEST_BYTES] + found[:, SlotWords.RESULT_CAPACITY]
        self.memory_bytes: list[float] = np.bincount(
            lanes, claimed.astype(np.float64), layout.lanes
        ).tolist()
        """Taken by them and for their answers, by lane."""

    def of(self, spec: ModelSpec) -> OfModel:
        """Return the requests under way for a model."""
        own: NDArray[Any] = self._models == spec.reference
        waiting = own & self._waits
        count = int(np.count_nonzero(waiting))
        oldest_ns = self._now_ns - int(self._accepted_ns[waiting].min()) if count else 0
        return OfModel(int(np.count_nonzero(own)), count, max(oldest_ns, 0) * _NS)


def _held(segment: Segment) -> NDArray[np.uint64]:
    """Return references to the requests that workers have."""
    held: list[int] = []
    for worker in range(segment.layout.workers):
        held += _references(_waiting_words(segment, worker))
    return np.array(held, np.uint64)


def _waiting_words(segment: Segment, worker: int) -> list[int]:
    """Return the words in the task ring of a worker."""
    words, ring = segment.words, segment.layout.task_ring(worker)
    head, tail = words[ring + RingWords.HEAD], words[ring + RingWords.TAIL]
    if not 0 <= tail - head <= TASK_WORDS:
        return []
    items = ring + RingWords.ITEMS
    return [words[items + number % TASK_WORDS] for number in range(head, tail)]


def _references(words: Sequence[int]) -> list[int]:
    """Return the references in the tasks of a ring.

    They end at the first impossible length: the ring may move on while it is read.
    """
    found: list[int] = []
    start = 0
    while start < len(words):
        size = words[start]
        if not TASK_HEADER_WORDS <= size <= len(words) - start:
            break
        found += words[start + TASK_HEADER_WORDS : start + size]
        start += size
    return found
