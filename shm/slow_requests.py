"""The slowest requests of each lane in the last minute, with their latency breakdown.

The owner of a lane keeps SLOW_REQUESTS of them, and none longer than WINDOW_S. One that comes in
takes the place of one that is too old, or else of the quickest. A reader takes those of all lanes,
and leaves out those that are too old, since an idle owner does not.

A record is published as a sequence lock does it, after C. Lameter, "Effective Synchronization on
Linux/NUMA Systems", 2005: its SEQUENCE is odd while it is written, and who finds another number
after reading than before, or an odd one, has read nothing.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ringbatch.shm.descriptors import REQUEST_RECORD_DETAILS, SLOW_REQUESTS, RequestRecordWords
from ringbatch.shm.latency_breakdown import PHASES, Breakdown
from ringbatch.shm.layout import WORD
from ringbatch.shm.memory_order import begin_change, is_unchanged, load_acquire, store_release
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.tallies import Protocol

WINDOW_S: Final = 60
_WINDOW_NS: Final = WINDOW_S * 1_000_000_000
_LOOK_NS: Final = 1_000_000_000
_DETAILS: Final = RequestRecordWords.ENDED_NS * WORD
_BEFORE_PHASES: Final = RequestRecordWords.PHASES - RequestRecordWords.ENDED_NS
_BEFORE_BATCH: Final = RequestRecordWords.BATCH - RequestRecordWords.ENDED_NS
_BEFORE_SPANS: Final = RequestRecordWords.TRACE - RequestRecordWords.ENDED_NS
_MAX_ID_BYTES: Final = (
    REQUEST_RECORD_DETAILS.size - (RequestRecordWords.ID - RequestRecordWords.ENDED_NS) * WORD
)
_HALF: Final = 64
_WORD_MASK: Final = (1 << _HALF) - 1
_SEQUENCE_MASK: Final = (1 << 62) - 1
_REASON_NAMES: Final = ("", *(reason.name.lower() for reason in sorted(Reason)))
"""Names of reasons by the number in a record: 0 for none, else a `Reason` plus 1."""

assert len(PHASES) == RequestRecordWords.BATCH - RequestRecordWords.PHASES
assert [*sorted(Reason)] == [*range(len(Reason))]


class RequestRecord(NamedTuple):
    """A request that has ended.

    Attributes:
        ended_ns: when, on the monotonic clock.
        account: of its model, see `ModelSpec.account`; the number of models if it was for none.
        protocol: how it came.
        code: as it is counted.
        instances: in it, as far as they are known.
        found: where its time went.
        trace: the trace that it belongs to, 32 hexadecimal digits; empty if there is none.
        request_id: the client's, or the one that the frontend gave it.
        parent: its client's span, 16 hexadecimal digits; empty if there is none.
        span: its own, if it is traced.
    """

    ended_ns: int
    account: int
    protocol: Protocol
    code: int
    instances: int
    found: Breakdown
    trace: str
    request_id: str
    parent: str = ""
    span: str = ""


class Slowest:
    """Slowest requests of one lane, for its owner, who goes on with the list of an earlier owner.

    Attributes:
        floor_ns: a request that took no longer is not among them.
        look_ns: from when on `look` may find that `floor_ns` is lower.

    Args:
        segment: attached.
        lane: the lane's number.
    """

    __slots__ = ("_ended_ns", "_first", "_segment", "_took_ns", "floor_ns", "look_ns")

    def __init__(self, segment: Segment, lane: int) -> None:
        self._segment = segment
        self._first = segment.layout.slow_requests(lane)
        found = [_whole(segment, first) for first in _records(self._first)]
        self._took_ns = [0 if held is None else held.found.total for held in found]
        self._ended_ns = [0 if held is None else held.ended_ns for held in found]
        self.floor_ns = -1
        self.look_ns = 0

    def look(self, now_ns: int) -> None:
        """Let newer requests replace the ones that ended too long ago."""
        self.look_ns = now_ns + _LOOK_NS
        places = zip(self._took_ns, self._ended_ns, strict=True)
        self.floor_ns = min(
            -1 if now_ns - ended_ns > _WINDOW_NS else took_ns for took_ns, ended_ns in places
        )

    def put(self, request: RequestRecord) -> None:
        """Record an ended request if it took longer than one of the recorded."""
        now_ns, took_ns = request.ended_ns, request.found.total
        self.look(now_ns)
        if took_ns <= self.floor_ns:
            return
        oldest = self._ended_ns.index(min(self._ended_ns))
        if now_ns - self._ended_ns[oldest] > _WINDOW_NS:
            place = oldest
        else:
            place = self._took_ns.index(min(self._took_ns))
        self._took_ns[place] = took_ns
        self._ended_ns[place] = now_ns
        first = self._first + place * RequestRecordWords.SIZE
        # An owner that died while it wrote has left an odd number.
        writing = self._segment.words[first] + 1 & _SEQUENCE_MASK | 1
        store(self._segment, first, request, writing)
        self.look(now_ns)


def slowest(segment: Segment, now_ns: int, count: int = SLOW_REQUESTS) -> list[RequestRecord]:
    """Return the slowest recent requests of all lanes, the slowest first.

    Args:
        segment: attached.
        now_ns: the time.
        count: how many at most.
    """
    layout = segment.layout
    found = [
        request
        for lane in range(layout.lanes)
        for first in _records(layout.slow_requests(lane))
        if (request := _whole(segment, first)) and now_ns - request.ended_ns <= _WINDOW_NS
    ]
    return sorted(found, key=lambda request: -request.found.total)[:count]


def _records(first: int) -> Iterator[int]:
    return iter(
        range(first, first + SLOW_REQUESTS * RequestRecordWords.SIZE, RequestRecordWords.SIZE)
    )


def _whole(segment: Segment, first: int) -> RequestRecord | None:
    """Return the request of a record; None if it is empty, or being written."""
    before = load_acquire(segment.words, first)
    if before == 0 or before % 2:
        return None
    return load(segment, first, before)


def store(segment: Segment, first: int, request: RequestRecord, writing: int) -> None:
    """Write a record, by the owner of its lane.

    Args:
        segment: attached.
        first: its first word.
        request: the contents of the record.
        writing: its SEQUENCE meanwhile, an odd number; afterwards it is the next.
    """
    words, found = segment.words, request.found
    text = request.request_id.encode()[:_MAX_ID_BYTES]
    trace = _number(request.trace)
    begin_change(words, first, writing)
    REQUEST_RECORD_DETAILS.pack_into(
        segment.memory,
        first * WORD + _DETAILS,
        request.ended_ns,
        request.account,
        request.protocol,
        request.code,
        request.instances,
        *found.phases,
        found.batch,
        found.batch_rows,
        _REASON_NAMES.index(found.reason),
        found.attempts,
        found.share,
        found.copy,
        trace >> _HALF,
        trace & _WORD_MASK,
        _number(request.parent),
        _number(request.span),
        len(text),
        text,
    )
    store_release(words, first, writing + 1)


def load(segment: Segment, first: int, written: int) -> RequestRecord | None:
    """Return the request of a record that was whole when its SEQUENCE was read.

    Args:
        segment: attached.
        first: its first word.
        written: its SEQUENCE then.

    Returns:
        None if it changed meanwhile, or makes no sense.
    """
    start = first * WORD + _DETAILS
    copied = bytes(segment.memory[start : start + REQUEST_RECORD_DETAILS.size])
    if not is_unchanged(segment.words, first, written):
        return None
    *numbers, text = REQUEST_RECORD_DETAILS.unpack(copied)
    ended_ns, account, protocol, code, instances = numbers[:_BEFORE_PHASES]
    phases = numbers[_BEFORE_PHASES:_BEFORE_BATCH]
    batch, batch_rows, reason, attempts, share, copy = numbers[_BEFORE_BATCH:_BEFORE_SPANS]
    high, low, parent, span, size = numbers[_BEFORE_SPANS:]
    if protocol >= len(Protocol) or reason >= len(_REASON_NAMES):
        return None
    read, wait, queue, gather, run, scatter, write, take = phases
    about_batch = batch, batch_rows, _REASON_NAMES[reason], attempts, share, copy
    found = Breakdown(read, wait, queue, gather, run, scatter, write, take, *about_batch)
    trace = high << _HALF | low
    request_id = text[: min(size, len(text))].decode("ascii", "replace")
    return RequestRecord(
        ended_ns,
        account,
        Protocol(protocol),
        code,
        instances,
        found,
        f"{trace:032x}" if trace else "",
        request_id,
        f"{parent:016x}" if parent else "",
        f"{span:016x}" if span else "",
    )


def _number(digits: str) -> int:
    return int(digits, 16) if digits else 0
