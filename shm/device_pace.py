"""Pace of a worker on a device, in the segment: how it wants its batches.

The worker writes it before it is ready, and the collector reads it after that.
"""

from typing import NamedTuple

from ringbatch.shm.descriptors import WorkerWords
from ringbatch.shm.segment import Segment


class Pace(NamedTuple):
    """The instants and sizes that suit a worker.

    Attributes:
        lead_ns: how long before the end of its batch it wants the next one, whose rows go to the
            device during that time; 0 if it wants none before the end.
        sizes: how many numbers of rows it pads batches to, if warm-up has tried all of them; else
            0.
    """

    lead_ns: int
    sizes: int


NO_PACE = Pace(0, 0)


def write(segment: Segment, worker: int, pace: Pace) -> None:
    """Put down the pace of a worker, before its state says that it is ready."""
    words, first = segment.words, segment.layout.worker(worker)
    words[first + WorkerWords.LEAD_NS] = pace.lead_ns
    words[first + WorkerWords.SIZES] = pace.sizes


def read(segment: Segment, worker: int) -> Pace:
    """Return the pace of a worker that is ready."""
    words, first = segment.words, segment.layout.worker(worker)
    return Pace(int(words[first + WorkerWords.LEAD_NS]), int(words[first + WorkerWords.SIZES]))
