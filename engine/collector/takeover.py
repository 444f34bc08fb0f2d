"""Takeover from another collector: the tasks that workers hold, read from their rings.

A worker lets go of a batch once all of it is answered, see `ringbatch.engine.worker.worker`. So
its ring has the tasks that it holds, or held when it died, until `reclaim` empties the ring.
"""

from collections.abc import Callable, Sequence

from ringbatch.engine.ipc.messages import BatchTask, read_tasks
from ringbatch.shm.descriptors import TASK_WORDS, WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.ring import Consumer, CorruptRingError
from ringbatch.shm.segment import Segment

_NEVER_NS = 1 << 62


def held(segment: Segment, worker: int) -> list[BatchTask]:
    """Return the tasks still in a worker's ring, the running one first.

    Raises:
        CorruptRingError: the ring makes no sense.
    """
    try:
        return read_tasks(_ring(segment, worker).peek())
    except IndexError:
        raise CorruptRingError(f"what worker {worker} is given is no task") from None


def reclaim(segment: Segment, worker: int) -> None:
    """Empty the ring of a worker that is dead, so that the next one of its number finds nothing."""
    _ring(segment, worker).skip()


def is_ready(segment: Segment, worker: int) -> bool:
    """Return whether a worker takes tasks, by its own words."""
    word = segment.layout.worker(worker) + WorkerWords.STATE
    return bool(segment.words[word] == WorkerState.READY)


def model_of(segment: Segment, worker: int) -> int:
    """Return the reference of a worker's model, by its own words."""
    reference: int = segment.words[segment.layout.worker(worker) + WorkerWords.MODEL]
    return reference


def requests_of(
    slots: EngineSlots, references: Sequence[int], asked: int, now_ns: int
) -> list[Request]:
    """Return requests of a worker; without payload if their words make no sense by now.

    The worker that runs them tells them apart.
    """
    requests = []
    for ref in references:
        request = slots.read(ref)
        if request is None:
            request = Request(ref, asked, 1, 0, 0, 0, 0, 0, now_ns, _NEVER_NS)
        requests.append(request._replace(model=asked))
    return requests


def _ring(segment: Segment, worker: int) -> Consumer:
    return Consumer(segment.words, segment.layout.task_ring(worker), TASK_WORDS)


def wake_all(segment: Segment, wake_lane: Callable[[int], None]) -> None:
    """Ring every lane: the last collector may have died between an answer and its wake-up."""
    for lane in range(segment.layout.lanes):
        wake_lane(lane)
