"""What stands in the slots of a lane beside their answers, for its owner: one, or many at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.slot_arrays import answered_array


class Answer(NamedTuple):
    """What the holder wrote beside its answer.

    Attributes:
        status: how the request ended.
        size: bytes of the result, or of the text where `status` is not OK; for
            RESULT_TOO_LARGE the bytes it would take.
        batch: the number of the batch, the same for all requests in it.
        batch_rows: instances in that batch.
        reason: the `Reason` it was closed for.
        dispatched_ns: when the collector gave the batch to a worker.
        began_ns: when the worker took it up.
        gathered_ns: when the model was started with it first; 0 where it was not.
        ran_ns: when the model returned last; 0 likewise.
        attempts: how many times the batch was run, up to this answer.
        finished_ns: when the answer stood in the slot.
    """

    status: Status
    size: int
    batch: int
    batch_rows: int
    reason: int
    dispatched_ns: int
    began_ns: int
    gathered_ns: int
    ran_ns: int
    attempts: int
    finished_ns: int


class Answers:
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
        """Which of some collected slots have an answer that is OK and takes `size` bytes.

        `Lane.answer` has what is to be known of the others.
        """
        found = self._slots[np.array(slots, dtype=np.intp)]
        # CONTROL is the owner's own word, and has the generation of the slot's latest request.
        controls, dones = found[:, SlotWords.CONTROL], found[:, SlotWords.DONE]
        sound: NDArray[np.bool_] = found[:, SlotWords.RESULT_BYTES] == size
        return sound & answered_array(controls, dones, Status.OK)
