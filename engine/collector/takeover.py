"""Takeover from another collector: the tasks that workers hold.

A worker lets go of a batch once all of it is answered, see `ringbatch.engine.worker.worker`. So
its ring has the tasks that it holds, or held when it died, until `reclaim` empties the ring. A
worker of a model in steps lets go of a task sooner, and the slots say what it holds, see
`ringbatch.shm.joined`.
"""

from collections.abc import Callable, Sequence

from ringbatch.engine.ipc.messages import BatchTask, read_tasks
from ringbatch.shm.descriptors import TASK_WORDS, WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.joined import Joined, JoinedRows
from ringbatch.shm.memory_order import load_acquire
from ringbatch.shm.ring import Consumer, CorruptRingError
from ringbatch.shm.segment import Segment

_NEVER_NS = 1 << 62


def held_by_all(segment: Segment) -> list[list[BatchTask] | None]:
    """Return the tasks that each worker holds, the running ones first; None if its ring is corrupt.

    All rings are read before any slot is: a worker of a model in steps marks the slots of a task
    before it takes the task out of its ring.
    """
    found = [_in_ring(segment, worker) for worker in range(segment.layout.workers)]
    for worker, batches in JoinedRows(segment).by_worker().items():
        tasks = found[worker] if worker < len(found) else None
        if tasks is not None:
            found[worker] = _together(batches, tasks, model_of(segment, worker))
    return found


def _together(joined: Sequence[Joined], tasks: list[BatchTask], asked: int) -> list[BatchTask]:
    """Return what a worker holds by its slots and by its ring, each request once."""
    in_ring = {ref for task in tasks for ref in task.references}
    left = [(mark, [ref for ref in refs if ref not in in_ring]) for mark, refs in joined]
    return [*(BatchTask(mark, refs, asked) for mark, refs in left if refs), *tasks]


def _in_ring(segment: Segment, worker: int) -> list[BatchTask] | None:
    try:
        return read_tasks(_ring(segment, worker).peek())
    except (CorruptRingError, IndexError):
        return None


def reclaim(segment: Segment, worker: int) -> None:
    """Forget the tasks of a dead worker, so that the next worker of its number holds none."""
    _ring(segment, worker).skip()
    JoinedRows(segment).forget(worker)


def is_ready(segment: Segment, worker: int) -> bool:
    """Return whether a worker takes tasks, by its own words."""
    word = segment.layout.worker(worker) + WorkerWords.STATE
    return load_acquire(segment.words, word) == WorkerState.READY


def model_of(segment: Segment, worker: int) -> int:
    """Return the reference of a worker's model, by its own words."""
    reference: int = segment.words[segment.layout.worker(worker) + WorkerWords.MODEL]
    return reference


def requests_of(
    slots: EngineSlots, references: Sequence[int], asked: int, now_ns: int
) -> list[Request]:
    """Return the requests of a worker; without payload if their words make no sense.

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
