"""What the batches of a worker took in warm-up, as they stand in the segment.

Written by the worker before it says that it is ready, read by the collector after that, and by
whoever wants to know. A worker that starts again writes them anew; who reads meanwhile may see some
of them.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from ringbatch.shm.descriptors import CostProfileWords
from ringbatch.shm.segment import Segment


class Trial(NamedTuple):
    """One batch that was run in warm-up.

    Attributes:
        rows: instances in it.
        length: the size of the open dimensions of its inputs; 0 where there are none.
        run_ns: how long it ran in nanoseconds.
    """

    rows: int
    length: int
    run_ns: int


def size_text(rows: int, length: int) -> str:
    """A batch's size for people."""
    return f"{rows} x {length}" if length else str(rows)


def write(segment: Segment, worker: int, trials: Sequence[Trial]) -> None:
    """Put down what a worker's warm-up took; of many trials the first MAX_TRIALS."""
    words, first = segment.words, segment.layout.cost_profile(worker)
    words[first + CostProfileWords.COUNT] = 0
    kept = trials[: CostProfileWords.MAX_TRIALS]
    for number, value in enumerate(chain.from_iterable(kept), first + CostProfileWords.TRIALS):
        words[number] = value
    words[first + CostProfileWords.COUNT] = len(kept)


def read(segment: Segment, worker: int) -> list[Trial]:
    """What a worker's warm-up took; nothing where there was none."""
    words, first = segment.words, segment.layout.cost_profile(worker)
    size = CostProfileWords.TRIAL_SIZE
    count = min(words[first + CostProfileWords.COUNT], CostProfileWords.MAX_TRIALS)
    start = first + CostProfileWords.TRIALS
    records = words[start : start + count * size].tolist()
    return [Trial._make(records[at : at + size]) for at in range(0, len(records), size)]
