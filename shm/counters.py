"""Counters in the segment, and the process that writes each.

Counters live in shared memory so that `ringbatch status` reads them without asking a process.
Each block has one writer and is a run of 8-byte words, one for each member of its enum, in order.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from ringbatch.shm.descriptors import CounterWords


class LaneCounter(IntEnum):
    """Written by a lane's holder."""

    REQUESTS = 0
    """Requests published, each once, also if it is split or sent again."""
    ANSWERS = 1
    """Requests whose answers, or the first of them, were collected while one was wanted."""
    REFUSED = 2
    """Requests refused because slots or payload memory were used up."""
    TIMEOUTS = 3
    """Requests answered with 504 because their deadline, or their next part's, came first."""
    LATE_ANSWERS = 4
    """Answers dropped because their generation was no longer the slot's."""
    MISSED_WAKEUPS = 5
    """Answers that only the safety sweep found; stays 0."""
    HANDED_OVER = 6
    """Connections that the fast lane gave to the Falcon path."""
    CORRUPT_RINGS = 7
    """Rings whose producer claimed the impossible."""
    CANCELLED = 8
    """Requests given up before their answer: the deadline came, or the client went."""
    HOLDERS = 9
    """Processes that took the lane, one after the other."""
    TLS_FAILED = 10
    """Connections to the lane's holder whose TLS hand-shake failed."""
    REFUSED_AT_SHARE = 11
    """Requests of REFUSED whose model had used up its share while slots for others were free."""
    PAYLOADS_LOST = 12
    """Exchanges for the payload log that were lost, because the control process was behind or the
    holder died."""
    RESUMED = 13
    """Times that a request was sent again to go on behind its parts, see `ringbatch.shm.parts`."""
    STALLED = 14
    """Answers in parts that ended because their client took nothing for too long."""
    REFUSALS_HELD = 15
    """Refusals that waited, because their clients came before they were to ask again."""


class CollectorCounter(IntEnum):
    """Written by the collector, for the engine as a whole."""

    STEPS = 0
    """Times the collector woke up."""
    CORRUPT_RINGS = 1
    """Rings whose producer claimed the impossible."""
    CORRUPT_SLOTS = 2
    """References whose slot made no sense."""
    WORKER_DEATHS = 3
    """Workers that died with or without a batch."""
    MISSED_WAKEUPS = 4
    """Requests or reports that only the safety sweep found; stays 0."""
    WORKERS_HUNG = 5
    """Workers that ran one batch for too long and were ended."""
    QUARANTINED = 6
    """Requests refused because the same had taken workers with it a moment ago."""
    STARTS = 7
    """Processes that were the collector, one after the other."""
    LIMITED_IN_FLIGHT = 8
    """Requests refused because their account had as many in flight as it may."""
    LIMITED_REQUESTS = 9
    """Requests refused because their account had sent as many a second as it may."""
    LIMITED_MODEL_S = 10
    """Requests refused because their account had used as many model seconds a second as it may."""


class ModelCounter(IntEnum):
    """Written by the collector, for each account, see `ringbatch.shm.model_counters`."""

    REQUESTS = 0
    """Requests collected, each part for itself, and each time that one is sent."""
    ROWS = 1
    """Instances in them."""
    EXPIRED = 2
    """Requests dropped because their deadline passed before they were run."""
    CANCELLED = 3
    """Requests dropped because nobody waited any more."""
    FAILED = 4
    """Batches that the model failed."""
    RETRIED = 5
    """Requests dispatched again because a batch failed or its worker died."""
    PARTS = 6
    """Requests collected that are further parts of a request that was counted before."""
    DISPATCHED_ROWS = 7
    """Instances in the batches dispatched."""
    PADDED_ROWS = 8
    """Rows that batches were filled up with."""
    FURTHER_RUNS = 9
    """Runs of batches beyond their first: halves of one that failed, what a death left."""
    EXECUTED = 10
    """Requests in the batches that were run."""
    INPUT_NS = 11
    """Time in which inputs were put together, summed over these requests."""
    INFER_NS = 12
    """Time inside the model, summed over these requests."""
    OUTPUT_NS = 13
    """Time in which results were given out, summed over these requests."""
    LATEST_NS = 14
    """Instant of the latest dispatch of a batch in nanoseconds of the monotonic clock; no count."""
    CRASHED = 15
    """Workers that ended by themselves."""
    KILLED = 16
    """Workers that somebody else killed."""
    HUNG = 17
    """Workers that ran one batch for too long and were ended."""


DEATHS: Final = {
    ModelCounter.CRASHED: "crashed",
    ModelCounter.KILLED: "killed",
    ModelCounter.HUNG: "hung",
}
"""Why workers ended that are started again, in a word, by the counters of these ends."""


class RestartCase(IntEnum):
    """Cases of a worker's restart, counted by the supervisor for each account.

    The case decides how soon the worker starts, see `ringbatch.engine.process.respawn`.
    """

    EXPLAINED = 0
    """A request killed the worker, and will not run again."""
    KILLED = 1
    """A process outside the engine killed the ready worker, which may be the kernel."""
    KILLED_LOADING = 2
    """A process outside the engine killed the worker before it was ready."""
    ANSWERED = 3
    """The worker ended by itself, or hung, and had answered batches before."""
    CRASHED = 4
    """The worker ended by itself, or hung, and had answered nothing since it was ready."""
    LOADING = 5
    """The worker ended by itself before it was ready."""
    FAILING = 6
    """The supervisor ended it because it failed every request."""
    REFUSED = 7
    """No process could be started; this counts attempts."""

    @property
    def words(self) -> str:
        """Words for the case, for people."""
        return _CASE_WORDS[self]


_CASE_WORDS: Final = {
    RestartCase.EXPLAINED: "a request killed it, which will not run again",
    RestartCase.KILLED: "it was killed from outside",
    RestartCase.KILLED_LOADING: "it was killed from outside before it was ready",
    RestartCase.ANSWERED: "it crashed or hung after it had answered batches",
    RestartCase.CRASHED: "it crashed or hung",
    RestartCase.LOADING: "it ended before it was ready",
    RestartCase.FAILING: "it failed every request",
    RestartCase.REFUSED: "no process could be started",
}


class WorkerCounter(IntEnum):
    """Written by a worker."""

    BATCHES = 0
    """Batches run."""
    ROWS = 1
    """Instances in them."""
    RUN_NS = 2
    """Time inside the model."""


ROWS_BUCKETS: Final = 17
"""Buckets of batches by their number of rows, see `rows_bucket`."""
_WORD_MASK: Final = (1 << 64) - 1
_LARGE: Final = (1 << 62) - 1

for _enum in (LaneCounter, CollectorCounter, WorkerCounter):
    assert max(_enum) < CounterWords.SIZE


def rows_bucket(rows: int) -> int:
    """Return the bucket of a batch of `rows` instances: 1, 2, 3-4, 5-8, 9-16 and so on."""
    return min((rows - 1).bit_length(), ROWS_BUCKETS - 1)


def bucket_label(bucket: int) -> str:
    """Return the sizes that a bucket covers, for people."""
    if bucket == 0:
        return "1"
    low, high = (1 << bucket - 1) + 1, 1 << bucket
    if bucket == ROWS_BUCKETS - 1:
        return f"{low} and more"
    return str(high) if low == high else f"{low}-{high}"


class Counters:
    """Block of counters, for the one process that writes it or for readers.

    Args:
        words: the segment as a memoryview of format ``Q``.
        first: where the block starts.
        size: the block's length in words.
    """

    __slots__ = ("_first", "_size", "_values", "_words")

    def __init__(self, words: memoryview, first: int, size: int = CounterWords.SIZE) -> None:
        self._words = words
        self._first = first
        self._size = size
        self._values: list[int] = []
        """The writer's own copy, which it has from its first `add` on: a look at the segment takes
        as long as all the rest."""

    def add(self, counter: int, amount: int = 1) -> None:
        """Count, modulo 2**64; each counter by one object alone."""
        values, first = self._values, self._first
        if not values:
            values += self._words[first : first + self._size].tolist()
        value = values[counter] + amount
        if value > _LARGE:
            # Rare, and slow for numbers of more than 62 bits, of which the mask is one.
            value &= _WORD_MASK
        values[counter] = value
        self._words[first + counter] = value

    def add_each(self, amounts: Iterable[int]) -> None:
        """`add` to the first counters of the block, in their order."""
        for counter, amount in enumerate(amounts):
            self.add(counter, amount)

    def add_all(self, amounts: Iterable[tuple[int, int]]) -> None:
        """`add` to several counters."""
        values, words, first = self._values, self._words, self._first
        if not values:
            values += words[first : first + self._size].tolist()
        for counter, amount in amounts:
            value = values[counter] + amount
            if value > _LARGE:
                value &= _WORD_MASK
            values[counter] = value
            words[first + counter] = value

    def __getitem__(self, counter: int) -> int:
        value: int = self._words[self._first + counter]
        return value
