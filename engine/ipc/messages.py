"""Tasks and reports between the collector and workers, as words in the rings of the segment.

The collector hands a task to a worker, and the worker sends a report back. Both start with their
length, so that several can be taken at once. `asked` is the word of `ringbatch.shm.chain`.

    task     length, asked, batch, reason, rows, dispatched_ns, references...
    report   length, kind, first, second, and the five words of a `Spent`
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ringbatch.shm.descriptors import TASK_HEADER_WORDS
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.ring import CorruptRingError
from ringbatch.shm.slot import Reason
from ringbatch.shm.tuples import unchecked_tuple

_REPORT_WORDS: Final = 9


class BatchTask(NamedTuple):
    """Batch for a worker to run; `asked` names the model and the step of its requests."""

    mark: BatchMark
    references: list[int]
    asked: int = 0


class ReportKind(IntEnum):
    """Kinds of reports; `first` and `second` depend on them."""

    READY = 0
    """The worker takes tasks."""
    DONE = 1
    """A batch is answered; first is its number, second how many instances were run. Its time comes
    with it, and is 0 if nobody waited for any of it any more."""
    FAILED = 2
    """As DONE, but the model failed for at least one of its requests."""
    RUNS_AGAIN = 3
    """A batch takes another run; first is its number."""
    EXPIRED = 4
    """Requests of a batch were not run, as their deadlines had come; first is its number, second
    how many."""
    CANCELLED = 5
    """As EXPIRED, but nobody waited for them any more."""
    MOST_ROWS = 6
    """The worker's word of that name has changed; first is `NO_BATCH_NUMBER`."""


NO_BATCH_NUMBER: Final = (1 << 64) - 1
"""Number that no batch has, in place of a batch's number."""
TOO_LATE: Final = "the deadline passed before a worker was free"
"""Text for a request that is not run because its deadline has passed."""
_REASONS: Final = tuple(Reason)
_REASON_COUNT: Final = len(_REASONS)
_KINDS: Final = tuple(ReportKind)
_KIND_COUNT: Final = len(_KINDS)


class Report(NamedTuple):
    """Report of a worker to the collector."""

    kind: ReportKind
    first: int
    second: int
    spent: Spent = NOTHING


def task_words(mark: BatchMark, references: Sequence[int], asked: int = 0) -> list[int]:
    """Return a task as words."""
    return [
        task_size(references),
        asked,
        mark.batch,
        mark.reason,
        mark.rows,
        mark.dispatched_ns,
        *references,
    ]


def task_size(references: Sequence[int]) -> int:
    """Return how many words a task of these takes."""
    return TASK_HEADER_WORDS + len(references)


def read_tasks(words: list[int]) -> list[BatchTask]:
    """Return the tasks in words taken from a ring.

    Raises:
        CorruptRingError: a length or a reason makes no sense.
    """
    found = []
    start = 0
    while start < len(words):
        stop = start + words[start]
        if words[start] < TASK_HEADER_WORDS or stop > len(words):
            raise CorruptRingError(f"a task of {words[start]} words at {start} of {len(words)}")
        _, asked, batch, reason, rows, dispatched_ns, *references = words[start:stop]
        if reason >= _REASON_COUNT:
            raise CorruptRingError(f"a task for the reason {reason}")
        mark = unchecked_tuple(
            BatchMark, (batch, rows, _REASONS[reason], dispatched_ns, 0, 0, 0, 0)
        )
        found.append(unchecked_tuple(BatchTask, (mark, references, asked)))
        start = stop
    return found


def report_words(
    kind: ReportKind, first: int, second: int = 0, spent: Spent = NOTHING
) -> list[int]:
    """Return a `Report` as words."""
    return [_REPORT_WORDS, kind, first, second, *spent]


def read_reports(words: list[int]) -> list[Report] | None:
    """Return the reports in words taken from a ring; None if they are none.

    A model's own code may have written into the segment.
    """
    found = []
    for start in range(0, len(words), _REPORT_WORDS):
        record = words[start : start + _REPORT_WORDS]
        if len(record) < _REPORT_WORDS or record[0] != _REPORT_WORDS:
            return None
        _, kind, first, second, *spent = record
        if kind >= _KIND_COUNT:
            return None
        report = (_KINDS[kind], first, second, unchecked_tuple(Spent, tuple(spent)))
        found.append(unchecked_tuple(Report, report))
    return found
