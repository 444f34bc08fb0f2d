"""Outcomes of requests, counted by the answering process for each model and protocol.

Every lane has a block for every place of the table's models, and one more for requests without an
existing model. The holder of the lane writes them, and readers add up those of all lanes. A block
names its account, which a model of one name and version keeps through every reload. So the counts
go on if a lane gets another holder or a model other files, and no model inherits those of another.

A request that was answered with 200 is counted by how long it took alone, all others by their
status. Refusals for lack of room or time, and those at a client's limit, are also counted by the
class of the request. Times are from acceptance to the answer, which is about to be written. Of
answers in parts, the time to the first part and those between two parts are counted as well, for
all protocols together.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.account import CLASS_NAMES, NOBODY, class_of
from ringbatch.shm.descriptors import TallyWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.memory_order import acquire_fence, begin_change, store_release
from ringbatch.shm.model_spec import INDEX_MASK
from ringbatch.shm.segment import Segment
from ringbatch.shm.time_buckets import BUCKETS, median_ns, time_bucket, time_counts


class Protocol(IntEnum):
    """Protocols that requests come by."""

    V1 = 0
    V2 = 1
    """V2 over HTTP, with a body that is JSON and nothing else."""
    V2_BINARY = 2
    """V2 over HTTP, with tensors behind the JSON."""
    GRPC = 3
    CLIENT = 4
    """Program on the same host, through `ringbatch.frontend.Client`."""
    HTTP = 5
    """Anything over HTTP that is no inference, or is not known to be one."""


_CODES: Final = (400, 401, 403, 404, 408, 413, 415, 429, 499, 500, 501, 502, 503, 504)
CODE_LABELS: Final = (*map(str, _CODES), "2xx", "4xx", "5xx")
"""Labels of statuses other than 200; the last three are for those without a count of their own."""
CLIENT_GONE: Final = 499
"""The status of a request whose client did not wait for its answer."""
_PLACE_OF: Final = {code: place for place, code in enumerate(_CODES)}
_OTHER_SUCCESS: Final = len(_CODES)

_TIMES: Final = len(CODE_LABELS)
_ANSWERED_NS: Final = _TIMES + BUCKETS
_ENDED_NS: Final = _ANSWERED_NS + 1
_INSTANCES: Final = _ENDED_NS + 1
_REFUSED: Final = _INSTANCES + 1
REFUSALS: Final = (429, 503)
"""Statuses of requests that are refused and may be sent again later."""
_RUN: Final = _REFUSED + len(CLASS_NAMES) * len(REFUSALS)
_WORD_MASK: Final = (1 << 62) - 1

_FIRST_PARTS: Final = TallyWords.PROTOCOLS + len(Protocol) * _RUN
_GAPS: Final = _FIRST_PARTS + BUCKETS + 1
_END: Final = _GAPS + BUCKETS + 1

assert _END <= TallyWords.SIZE


class Histogram:
    """Times in buckets, and behind them their sum, for the holder of the lane.

    Args:
        words: of the segment.
        first: the word of the first bucket.
    """

    __slots__ = ("_first", "_values", "_words")

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._first = first
        self._values: list[int] = words[first : first + BUCKETS + 1].tolist()

    def add(self, took_ns: int, times: int = 1) -> None:
        """Count a time, or the same several times."""
        values, words, first = self._values, self._words, self._first
        bucket = time_bucket(took_ns)
        values[bucket] = words[first + bucket] = values[bucket] + times & _WORD_MASK
        sum_ns = values[BUCKETS] + took_ns * times & _WORD_MASK
        values[BUCKETS] = words[first + BUCKETS] = sum_ns

    def close(self) -> None:
        """Count nowhere any more: the block is another account's."""
        self._words, self._first = memoryview(bytearray((BUCKETS + 1) * WORD)).cast("Q"), 0


class PartTimes:
    """Times of the answers in parts of one account in one lane.

    Attributes:
        first: from acceptance to the first part.
        gaps: between two parts of an answer.

    Args:
        words: of the segment.
        start: the first word of the account's block.
    """

    __slots__ = ("first", "gaps")

    def __init__(self, words: memoryview, start: int) -> None:
        self.first = Histogram(words, start + _FIRST_PARTS)
        self.gaps = Histogram(words, start + _GAPS)

    def count(self, now_ns: int, last_ns: int, accepted_ns: int) -> int:
        """Count the time of a part that has come; return when that was.

        Args:
            now_ns: the time.
            last_ns: when the part before came; 0 for the first.
            accepted_ns: when the request was accepted.
        """
        if last_ns:
            self.gaps.add(now_ns - last_ns)
        else:
            self.first.add(now_ns - accepted_ns)
        return now_ns

    def close(self) -> None:
        """Count nowhere any more: the block is another account's."""
        self.first.close()
        self.gaps.close()


class Tally:
    """The counts of one account and one protocol in one lane, for the holder of the lane.

    Attributes:
        account: of the model; the number of models if there is none.
        name: of the model; empty if there is none.
        version: of the model.
        protocol: how the requests came.
        parts: the times of answers in parts, by any protocol.
        pending_ns: what requests took that were answered with 200 and are not counted yet, see
            `settle`.
        pending_instances: in these.
    """

    __slots__ = (
        "_first",
        "_values",
        "_words",
        "account",
        "name",
        "parts",
        "pending_instances",
        "pending_ns",
        "protocol",
        "version",
    )

    def __init__(
        self,
        words: memoryview,
        first: int,
        account: int,
        name: str,
        version: str,
        protocol: Protocol,
        parts: PartTimes,
    ) -> None:
        self.parts = parts
        self.account = account
        self.name = name
        self.version = version
        self.protocol = protocol
        self.pending_ns: list[int] = []
        self.pending_instances = 0
        self._words = words
        self._first = first
        self._values: list[int] = words[first : first + _RUN].tolist()
        """The writer's own copy: to load a word takes as long as all the rest."""

    def answered(self, took_ns: int, instances: int) -> None:
        """Count a request that was answered with 200."""
        self._add(_TIMES + time_bucket(took_ns), 1)
        self._add(_ANSWERED_NS, took_ns)
        self._add(_INSTANCES, instances)

    def settle(self) -> None:
        """Count what is pending; for many together that costs a fraction."""
        times_ns = self.pending_ns
        if len(times_ns) == 1:
            self.answered(times_ns.pop(), self.pending_instances)
        else:
            for bucket, count in time_counts(times_ns):
                self._add(_TIMES + bucket, count)
            self._add(_ANSWERED_NS, sum(times_ns))
            self._add(_INSTANCES, self.pending_instances)
            times_ns.clear()
        self.pending_instances = 0

    def median_ns(self) -> int:
        """Return the median time of requests answered with 200; 0 before the first."""
        self.settle()
        return median_ns(self._values[_TIMES:_ANSWERED_NS])

    def answered_many(self, took_ns: NDArray[Any]) -> None:
        """`answered` for requests of one instance each."""
        self.pending_ns += took_ns.tolist()
        self.pending_instances += len(took_ns)
        self.settle()

    def ended(self, code: int, took_ns: int, count: int = 1, account: int = NOBODY) -> None:
        """Count requests that ended in another way.

        Args:
            code: the status, whatever the protocol calls it.
            took_ns: from acceptance on, each of them.
            count: how many they are.
            account: their account word, of which the class counts.
        """
        if code == 200:
            for _ in range(count):
                self.answered(took_ns, 0)
            return
        place = _PLACE_OF.get(code)
        if place is None:
            place = _OTHER_SUCCESS + (code >= 400) + (code >= 500)
        self._add(place, count)
        self._add(_ENDED_NS, took_ns * count)
        if code in REFUSALS:
            place = class_of(account) * len(REFUSALS) + REFUSALS.index(code)
            self._add(_REFUSED + place, count)

    def _add(self, place: int, amount: int) -> None:
        self._values[place] = value = self._values[place] + amount & _WORD_MASK
        self._words[self._first + place] = value

    def close(self) -> None:
        """Count nowhere any more: the block is another account's."""
        self._words = memoryview(bytearray((self._first + _RUN) * WORD)).cast("Q")


class Tallies:
    """The blocks of one lane, for its holder; there is one such object for a lane at a time.

    Args:
        segment: attached.
        lane: the lane's number.
    """

    def __init__(self, segment: Segment, lane: int) -> None:
        self._words = segment.words
        self._layout = segment.layout
        self._lane = lane
        self._open: dict[int, tuple[int, tuple[Tally, ...]]] = {}
        """Account, and its counts by protocol, of each place."""
        self.nobody = self.of(self._layout.models, "", "")
        """Counts of requests for models that do not exist."""

    def of(self, account: int, name: str, version: str) -> tuple[Tally, ...]:
        """Return the counts of an account, by protocol.

        Args:
            account: see `ModelSpec.account`.
            name, version: of the model.
        """
        place = account & INDEX_MASK
        known, tallies = self._open.get(place, (-1, ()))
        if known == account:
            return tallies
        for tally in tallies:
            tally.close()
            tally.parts.close()
        words, start = self._words, self._layout.tally(self._lane, place)
        tag = account + 1
        if words[start + TallyWords.TAG] != tag:
            begin_change(words, start + TallyWords.TAG)
            for word in range(start + TallyWords.PROTOCOLS, start + TallyWords.SIZE):
                words[word] = 0
            store_release(words, start + TallyWords.TAG, tag)
        first, parts = start + TallyWords.PROTOCOLS, PartTimes(words, start)
        found = tuple(
            Tally(words, first + protocol * _RUN, account, name, version, protocol, parts)
            for protocol in Protocol
        )
        self._open[place] = account, found
        return found


class Ends:
    """Outcomes of one account, over all lanes.

    Attributes:
        codes: by protocol, the requests that were answered with 200, and behind them the others, in
            the order of `CODE_LABELS`.
        times: of those answered with 200, by bucket of their time.
        answered: how many these are.
        answered_ns: their time, all together.
        ended: how many others there are.
        ended_ns: their time.
        instances: in those answered with 200.
        refused: by the name of the class, the requests that were refused, in the order of
            `REFUSALS`.
        first_parts, first_parts_ns: of answers in parts, the times to the first part by bucket, and
            all together.
        gaps, gaps_ns: the times between two parts, likewise.
    """

    def __init__(self, runs: NDArray[np.uint64], parts: NDArray[np.uint64]) -> None:
        times = runs[:, _TIMES:_ANSWERED_NS]
        answered = times.sum(axis=1, keepdims=True)
        others = runs[:, :_TIMES]
        self.codes: list[list[int]] = np.concatenate([answered, others], axis=1).tolist()
        self.times: list[int] = times.sum(axis=0).tolist()
        self.answered = int(answered.sum())
        self.answered_ns = int(runs[:, _ANSWERED_NS].sum())
        self.ended = int(others.sum()) - int(others[:, _OTHER_SUCCESS].sum())
        self.ended_ns = int(runs[:, _ENDED_NS].sum())
        self.instances = int(runs[:, _INSTANCES].sum())
        refused = runs[:, _REFUSED:_RUN].sum(axis=0).reshape(-1, len(REFUSALS)).tolist()
        self.refused: dict[str, list[int]] = {n: refused[c] for n, c in CLASS_NAMES.items()}
        found: list[int] = parts.tolist()
        (*self.first_parts, self.first_parts_ns) = found[: BUCKETS + 1]
        (*self.gaps, self.gaps_ns) = found[BUCKETS + 1 :]


def ends_of(segment: Segment, accounts: Iterable[int]) -> dict[int, Ends]:
    """Return the outcomes of accounts; the number of models stands for requests to none."""
    layout = segment.layout
    shape = (layout.lanes, layout.models + 1, TallyWords.SIZE)
    blocks = np.ndarray(shape, np.uint64, segment.memory, layout.tallies_word * WORD)
    found = {}
    for account in accounts:
        own = blocks[:, account & INDEX_MASK]
        tags = own[:, TallyWords.TAG].copy()
        acquire_fence()
        copied = own.copy()
        acquire_fence()
        # One whose tag has changed meanwhile may hold the counts of two accounts.
        whole = (tags == account + 1) & (own[:, TallyWords.TAG] == tags)
        counts = copied[whole].sum(axis=0)
        runs = counts[TallyWords.PROTOCOLS : _FIRST_PARTS].reshape(len(Protocol), _RUN)
        found[account] = Ends(runs, counts[_FIRST_PARTS:_END])
    return found
