"""Answers of many collected slots at once, for the owner of their lane."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.slot_arrays import answered_array


class SlotAnswers:
    """The slots of a lane as an array.

    Args:
        segment: where the lane lies.
        lane: which lane.
    """

    def __init__(self, segment: Segment, lane: int) -> None:
        layout = segment.layout
        self._slots: NDArray[np.uint64] = np.ndarray(
            (layout.slots, SlotWords.SIZE),
            np.uint64,
            segment.memory,
            layout.slot(lane * layout.slots) * WORD,
        )

    def ok(self, slots: Sequence[int], size: int) -> NDArray[np.bool_]:
        """Return a mask of the collected slots whose answer is OK and takes `size` bytes.

        `Lane.answer` reads the others one by one.
        """
        found = self._slots[np.array(slots, dtype=np.intp)]
        # CONTROL is the owner's own word, and has the generation of the slot's latest request.
        controls, dones = found[:, SlotWords.CONTROL], found[:, SlotWords.DONE]
        sound: NDArray[np.bool_] = found[:, SlotWords.RESULT_BYTES] == size
        return sound & answered_array(controls, dones, Status.OK)
