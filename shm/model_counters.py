"""Counters of the collector for one model; an account keeps its counts through every reload.

A block has a tag with its account, as the blocks of `ringbatch.shm.tallies` have.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ringbatch.shm.account import CLASS_NAMES, LEVELS, MIXED, PriorityClass, class_of
from ringbatch.shm.counters import ROWS_BUCKETS, Counters, ModelCounter, rows_bucket
from ringbatch.shm.descriptors import ModelCounterWords
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.memory_order import begin_change, is_unchanged, load_acquire, store_release
from ringbatch.shm.model_spec import INDEX_MASK
from ringbatch.shm.slot import Reason
from ringbatch.shm.time_buckets import BUCKETS, time_bucket, time_counts

_SINGLE: Final = 64
"""Batches of up to so many rows are counted for each size, larger ones by the power of two that
they do not exceed."""
_LARGER: Final = tuple(1 << power for power in range(7, 17))
SIZES: Final = (*range(1, _SINGLE + 1), *_LARGER)
"""The sizes that batches are counted under, the last of them with all that are larger still."""

_RETRIED: Final = int(ModelCounter.RETRIED)
_DISPATCHED_ROWS: Final = int(ModelCounter.DISPATCHED_ROWS)
_LATEST_NS: Final = int(ModelCounter.LATEST_NS)
_PADDED_ROWS: Final = int(ModelCounter.PADDED_ROWS)
_FURTHER_RUNS: Final = int(ModelCounter.FURTHER_RUNS)
_EXECUTED: Final = int(ModelCounter.EXECUTED)
_INPUT_NS: Final = int(ModelCounter.INPUT_NS)
_INFER_NS: Final = int(ModelCounter.INFER_NS)
_OUTPUT_NS: Final = int(ModelCounter.OUTPUT_NS)
_BY_CLASS: Final = ModelCounterWords.BY_CLASS
_CLASS_RECORD: Final = ModelCounterWords.CLASS_RECORD
_CLASS_WAIT_NS: Final = 1
"""The place of a sum in the record of a class, which begins with the number of parts."""
_CLASS_RUN_NS: Final = _BY_CLASS + 2
_NORMAL: Final = int(PriorityClass.NORMAL)
_BY_REASON: Final = ModelCounterWords.BATCHES_BY_REASON
_BY_ROWS: Final = ModelCounterWords.BATCHES_BY_ROWS
_BY_WAIT: Final = ModelCounterWords.REQUESTS_BY_WAIT
_BY_RUN: Final = ModelCounterWords.BATCHES_BY_RUN
_BY_SIZE: Final = ModelCounterWords.BATCHES_BY_SIZE
_SIZE_RECORD: Final = ModelCounterWords.SIZE_RECORD
_RETRY: Final = Reason.RETRY

assert max(ModelCounter) < _BY_CLASS
assert _BY_CLASS + len(PriorityClass) * _CLASS_RECORD <= ModelCounterWords.TAG < _BY_REASON
assert _BY_REASON + len(Reason) <= _BY_ROWS
assert _BY_ROWS + ROWS_BUCKETS <= _BY_WAIT
assert _BY_WAIT + BUCKETS <= _BY_RUN
assert _BY_RUN + BUCKETS <= _BY_SIZE
assert len(SIZES) == ModelCounterWords.SIZES
assert _BY_SIZE + len(SIZES) * _SIZE_RECORD <= ModelCounterWords.SIZE


class Spent(NamedTuple):
    """Time and rows of a batch in its worker.

    Attributes:
        input_ns: until the model was started.
        infer_ns: inside the model.
        output_ns: after it had returned.
        padded_rows: that filled it up.
        further_runs: beyond the first.
    """

    input_ns: int
    infer_ns: int
    output_ns: int
    padded_rows: int
    further_runs: int


NOTHING: Final = Spent(0, 0, 0, 0, 0)
"""Time of a batch that was not run: none."""


class BatchStatistics(NamedTuple):
    """The batches of one size; times are summed over them."""

    rows: int
    batches: int
    input_ns: int
    infer_ns: int
    output_ns: int


class ClassStatistics(NamedTuple):
    """Requests of one class.

    Attributes:
        parts: the requests, or parts of requests, that were dispatched for the first time.
        wait_ns: time between acceptance and dispatch, summed over these.
        run_ns: time inside the model; of a batch with several classes, the share of this one.
    """

    parts: int
    wait_ns: int
    run_ns: int


class ModelCounters(Counters):
    """The block of one account, for the collector."""

    __slots__ = ()

    def dispatched(
        self,
        accepted_ns: Sequence[int],
        now_ns: int,
        reason: Reason,
        rows: int,
        priority: int = _NORMAL,
        accounts: Sequence[int] = (),
    ) -> None:
        """Count a batch that is given to a worker.

        Args:
            accepted_ns: when each of its requests was accepted.
            now_ns: the time.
            reason: why it was closed.
            rows: instances in it.
            priority: class of its requests, or `MIXED`.
            accounts: the account word of each request; looked at only if these are mixed.
        """
        add, count = self.add, len(accepted_ns)
        if reason is _RETRY:
            # These have been counted as waiting when they were dispatched first.
            add(_RETRIED, count)
        else:
            if priority == MIXED:
                self._waited(accepted_ns, now_ns, accounts)
            else:
                record = _BY_CLASS + priority * _CLASS_RECORD
                add(record, count)
                add(record + _CLASS_WAIT_NS, now_ns * count - sum(accepted_ns))
            for bucket, waited in time_counts([now_ns - ns for ns in accepted_ns]):
                add(_BY_WAIT + bucket, waited)
        add(_BY_REASON + reason)
        add(_BY_ROWS + rows_bucket(rows))
        add(_DISPATCHED_ROWS, rows)
        add(_LATEST_NS, now_ns - self._values[_LATEST_NS])

    def _waited(self, accepted_ns: Sequence[int], now_ns: int, accounts: Sequence[int]) -> None:
        """Count the waits of requests of several classes."""
        for each in PriorityClass:
            pairs = zip(accepted_ns, accounts, strict=True)
            own = [now_ns - ns for ns, word in pairs if class_of(word) is each]
            record = _BY_CLASS + each * _CLASS_RECORD
            self.add(record, len(own))
            self.add(record + _CLASS_WAIT_NS, sum(own))

    def ran(
        self,
        requests: int,
        rows: int,
        spent: Spent,
        priority: int = _NORMAL,
        shares: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Count a batch that was run.

        Args:
            requests: number of requests in it.
            rows: number of instances in it.
            spent: its times.
            priority: class of its requests, or `MIXED`.
            shares: classes with their shares of its time inside the model, if these are mixed.
        """
        input_ns, infer_ns, output_ns, padded_rows, further_runs = spent
        own_ns = infer_ns
        if priority == MIXED:
            priority, own_ns = _NORMAL, 0
            for each, share_ns in shares:
                self.add(_CLASS_RUN_NS + each * _CLASS_RECORD, share_ns)
        if padded_rows:
            self.add(_PADDED_ROWS, padded_rows)
        if further_runs:
            self.add(_FURTHER_RUNS, further_runs)
        size = rows - 1
        if rows > _SINGLE:
            size = min(_SINGLE + (rows - 1).bit_length() - 7, len(SIZES) - 1)
        record = _BY_SIZE + size * _SIZE_RECORD
        self.add_all(
            (
                (_CLASS_RUN_NS + priority * _CLASS_RECORD, own_ns),
                (_BY_RUN + time_bucket(infer_ns), 1),
                (_EXECUTED, requests),
                (_INPUT_NS, input_ns * requests),
                (_INFER_NS, infer_ns * requests),
                (_OUTPUT_NS, output_ns * requests),
                (record, 1),
                (record + 1, input_ns),
                (record + 2, infer_ns),
                (record + 3, output_ns),
            )
        )

    def worker_died(self, *, hung: bool, killed: bool) -> None:
        """Count the death of a worker."""
        if hung:
            self.add(ModelCounter.HUNG)
        else:
            self.add(ModelCounter.KILLED if killed else ModelCounter.CRASHED)

    def open(self, account: int) -> None:
        """Count for an account from now on; what was counted for another is wiped."""
        words, first, tag = self._words, self._first, account + 1
        if words[first + ModelCounterWords.TAG] != tag:
            begin_change(words, first + ModelCounterWords.TAG)
            for word in range(first, first + ModelCounterWords.SIZE):
                words[word] = 0
            store_release(words, first + ModelCounterWords.TAG, tag)

    def close(self) -> None:
        """Count nowhere any more: the block is another account's."""
        self._words = memoryview(bytearray((self._first + self._size) * WORD)).cast("Q")


class CounterBlocks:
    """The blocks of all accounts, for the collector, which has one object for each.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
    """

    def __init__(self, words: memoryview, layout: Layout) -> None:
        self._words = words
        self._layout = layout
        self._open: dict[int, tuple[int, ModelCounters]] = {}

    def of(self, account: int) -> ModelCounters:
        """Return the counters of an account, see `ModelSpec.account`."""
        place = account & INDEX_MASK
        known = self._open.get(place)
        if known is not None:
            if known[0] == account:
                return known[1]
            known[1].close()
        first = self._layout.model_counters(place)
        counters = ModelCounters(self._words, first, ModelCounterWords.SIZE)
        counters.open(account)
        self._open[place] = account, counters
        return counters


class Counted:
    """Counts of an account at one instant.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        account: the account to read.
    """

    def __init__(self, words: memoryview, layout: Layout, account: int) -> None:
        first = layout.model_counters(account & INDEX_MASK)
        tag = load_acquire(words, first + ModelCounterWords.TAG)
        found: list[int] = words[first : first + ModelCounterWords.SIZE].tolist()
        own = tag == account + 1 and is_unchanged(words, first + ModelCounterWords.TAG, tag)
        self._values = found if own else [0] * ModelCounterWords.SIZE

    def __getitem__(self, counter: int) -> int:
        return self._values[counter]

    @property
    def classes(self) -> dict[str, ClassStatistics]:
        """Statistics of all classes by name, the highest class first."""
        found = {}
        for name in LEVELS:
            start = _BY_CLASS + CLASS_NAMES[name] * _CLASS_RECORD
            found[name] = ClassStatistics(*self._values[start : start + _CLASS_RECORD])
        return found

    @property
    def wait_ns(self) -> int:
        """Time between acceptance and the first dispatch, summed over requests."""
        return sum(own.wait_ns for own in self.classes.values())

    @property
    def run_ns(self) -> int:
        """Time inside the model, summed over batches."""
        return sum(own.run_ns for own in self.classes.values())

    @property
    def batches(self) -> list[int]:
        """Dispatched, by `Reason`."""
        return self._values[_BY_REASON : _BY_REASON + len(Reason)]

    @property
    def batch_rows(self) -> list[int]:
        """Batches dispatched, by `rows_bucket`."""
        return self._values[_BY_ROWS : _BY_ROWS + ROWS_BUCKETS]

    @property
    def waits(self) -> list[int]:
        """Requests dispatched, by the bucket of the time that they waited."""
        return self._values[_BY_WAIT : _BY_WAIT + BUCKETS]

    @property
    def runs(self) -> list[int]:
        """Batches run, by the bucket of their time inside the model."""
        return self._values[_BY_RUN : _BY_RUN + BUCKETS]

    @property
    def sizes(self) -> list[BatchStatistics]:
        """Statistics of batches by size, for the sizes that occurred."""
        found = []
        for number, rows in enumerate(SIZES):
            start = _BY_SIZE + number * _SIZE_RECORD
            record = self._values[start : start + _SIZE_RECORD]
            if record[0]:
                found.append(BatchStatistics(rows, *record))
        return found
