"""What the batches of a worker took in warm-up, as they stand in the segment.

Written by the worker before it says that it is ready, read by the collector after that, and by
whoever wants to know. A worker that starts again writes them anew; who reads meanwhile may see some
of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ringbatch.shm.layout import MAX_TRIALS, TRIAL_COUNT, TRIAL_RECORDS, TRIAL_WORDS, WORD
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
    """Put down what a worker's warm-up took; of many trials the first `MAX_TRIALS`."""
    start = segment.layout.worker_trials(worker)
    words, count = segment.words, (start + TRIAL_COUNT) // WORD
    words[count] = 0
    kept = trials[:MAX_TRIALS]
    for number, trial in enumerate(kept):
        first = (start + TRIAL_RECORDS) // WORD + number * TRIAL_WORDS
        for index, value in enumerate(trial):
            words[first + index] = value
    words[count] = len(kept)


def read(segment: Segment, worker: int) -> list[Trial]:
    """What a worker's warm-up took; nothing where there was none."""
    start = segment.layout.worker_trials(worker)
    words = segment.words
    count = min(words[(start + TRIAL_COUNT) // WORD], MAX_TRIALS)
    first = (start + TRIAL_RECORDS) // WORD
    records = words[first : first + count * TRIAL_WORDS].tolist()
    return [
        Trial._make(records[at : at + TRIAL_WORDS]) for at in range(0, len(records), TRIAL_WORDS)
    ]
