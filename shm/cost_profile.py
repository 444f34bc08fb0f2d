"""Cost profile: the run times of a worker's warm-up batches, in the segment.

The worker writes it before it is ready; the collector and the commands read it after that. A worker
that restarts writes it anew, and a reader may then see a part of it.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from ringbatch.shm.descriptors import CostProfileWords
from ringbatch.shm.memory_order import begin_change, load_acquire, store_release
from ringbatch.shm.segment import Segment


class Trial(NamedTuple):
    """Measured batch of the warm-up: its size and its run time.

    Attributes:
        rows: instances in it.
        length: the size of the open dimensions of its inputs; 0 if there are none.
        run_ns: how long it ran in nanoseconds.
    """

    rows: int
    length: int
    run_ns: int


def size_text(rows: int, length: int) -> str:
    """Return a batch's size for people."""
    return f"{rows} x {length}" if length else str(rows)


def write(segment: Segment, worker: int, trials: Sequence[Trial]) -> None:
    """Put down what a worker's warm-up took; of many trials the first MAX_TRIALS."""
    words, first = segment.words, segment.layout.cost_profile(worker)
    begin_change(words, first + CostProfileWords.COUNT)
    kept = trials[: CostProfileWords.MAX_TRIALS]
    for number, value in enumerate(chain.from_iterable(kept), first + CostProfileWords.TRIALS):
        words[number] = value
    store_release(words, first + CostProfileWords.COUNT, len(kept))


def read(segment: Segment, worker: int) -> list[Trial]:
    """Return the trials of a worker's warm-up; none if it had no warm-up."""
    words, first = segment.words, segment.layout.cost_profile(worker)
    size = CostProfileWords.TRIAL_SIZE
    count = min(load_acquire(words, first + CostProfileWords.COUNT), CostProfileWords.MAX_TRIALS)
    start = first + CostProfileWords.TRIALS
    records = words[start : start + count * size].tolist()
    return [Trial._make(records[at : at + size]) for at in range(0, len(records), size)]
