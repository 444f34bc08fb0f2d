"""Scaling words: wanted workers of a model, and counts of scalings and restarts, by the supervisor.

A block has a tag that says whose it is, as the blocks of `ringbatch.shm.tallies` have.
"""

from enum import IntEnum
from typing import Final

from ringbatch.shm.counters import Counters, RestartCase
from ringbatch.shm.descriptors import ScalingWords
from ringbatch.shm.layout import Layout
from ringbatch.shm.memory_order import begin_change, load_acquire, store_release
from ringbatch.shm.model_spec import INDEX_MASK

_TAG: Final = ScalingWords.TAG


class Cause(IntEnum):
    """Why workers are started or let go, or are not started."""

    LATE = 0
    """The predicted wait was above its target."""
    REQUEST = 1
    """A request came for a model without a worker."""
    IDLE = 2
    """Fewer suffice for the load."""
    UNUSED = 3
    """No request came."""
    MEMORY = 4
    """There is no memory for another worker."""
    CPUS = 5
    """No CPU has time for another worker."""
    FAILED = 6
    """A new worker was started and did not become ready."""

    @property
    def direction(self) -> str:
        """Direction of the change: up, down, or held."""
        if self in (Cause.LATE, Cause.REQUEST):
            return "up"
        return "down" if self in (Cause.IDLE, Cause.UNUSED) else "held"

    @property
    def words(self) -> str:
        """Words for the cause, for people."""
        return _WORDS[self]


_WORDS: Final = {
    Cause.LATE: "the predicted wait is above its target",
    Cause.REQUEST: "a request has come",
    Cause.IDLE: "fewer suffice",
    Cause.UNUSED: "no request comes",
    Cause.MEMORY: "there is no memory for more",
    Cause.CPUS: "no CPU has time for more",
    Cause.FAILED: "a worker was not ready",
}
assert ScalingWords.COUNTS + len(Cause) <= ScalingWords.RESTARTS
assert ScalingWords.RESTARTS + len(RestartCase) <= ScalingWords.SIZE


class Scalings:
    """The block of one account; the supervisor alone changes it.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        account: see `ModelSpec.account`.
    """

    def __init__(self, words: memoryview, layout: Layout, account: int) -> None:
        self._words = words
        self._tag = account + 1
        self._first = layout.scaling(account & INDEX_MASK)

    def open(self) -> None:
        """Have it be this account's; what it says of another is wiped."""
        words, first = self._words, self._first
        if words[first + _TAG] != self._tag:
            begin_change(words, first + _TAG)
            for word in range(first, first + ScalingWords.SIZE):
                words[word] = 0
            store_release(words, first + _TAG, self._tag)

    def want(self, workers: int) -> None:
        """Publish the number of workers that are to run."""
        self._words[self._first + ScalingWords.WANTED] = workers

    def fail(self, again_ns: int) -> None:
        """Publish that the last start of workers failed, and the instant of the next attempt."""
        self._words[self._first + ScalingWords.AGAIN_NS] = again_ns
        store_release(self._words, self._first + ScalingWords.FAILED, 1)

    def succeed(self) -> None:
        """Publish that the last decision was carried out."""
        self._words[self._first + ScalingWords.FAILED] = 0

    def count(self, cause: Cause) -> None:
        """Count a decision."""
        Counters(self._words, self._first + ScalingWords.COUNTS, len(Cause)).add(cause)

    def count_restart(self, case: RestartCase) -> None:
        """Count a worker that is started again."""
        Counters(self._words, self._first + ScalingWords.RESTARTS, len(RestartCase)).add(case)

    @property
    def wanted(self) -> int:
        """Number of workers that are to run; 0 before the first decision."""
        return self._words[self._first + ScalingWords.WANTED] if self._is_own else 0

    @property
    def failed(self) -> bool:
        """True if the last start of workers failed."""
        return self._is_own and bool(load_acquire(self._words, self._first + ScalingWords.FAILED))

    @property
    def again_ns(self) -> int:
        """Instant of the next attempt to start workers; without meaning unless `failed`."""
        return self._words[self._first + ScalingWords.AGAIN_NS] if self._is_own else 0

    def counts(self) -> dict[Cause, int]:
        """Return the counts of decisions by their cause, since the engine started."""
        first = self._first + ScalingWords.COUNTS
        own = self._is_own
        return {cause: self._words[first + cause] if own else 0 for cause in Cause}

    def restarts(self) -> dict[RestartCase, int]:
        """Return the workers that were started again since the engine started, by case."""
        first = self._first + ScalingWords.RESTARTS
        own = self._is_own
        return {case: self._words[first + case] if own else 0 for case in RestartCase}

    @property
    def _is_own(self) -> bool:
        return load_acquire(self._words, self._first + _TAG) == self._tag
