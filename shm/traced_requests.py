"""Ring of traced requests of a lane, read by the span exporter.

Each lane has a ring of the last ones. Its owner writes them, waits for nobody, and overwrites the
oldest; a reader keeps its own place, writes nothing, and knows how many it has missed,
because they are numbered through: the record of number n stands at n modulo their count. While it
is written its SEQUENCE is 2 n + 1, and then 2 n + 2; so a reader finds out as with a record of
`ringbatch.shm.slow_requests` that it has changed while he read it.
"""

from typing import Final

from ringbatch.shm.descriptors import RequestRecordWords
from ringbatch.shm.memory_order import load_acquire
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import RequestRecord, load, store

_SIZE: Final = RequestRecordWords.SIZE


class TracedRequests:
    """Traced requests of one lane, for its owner, who goes on where an earlier owner stopped.

    Args:
        segment: attached; its layout has room for them.
        lane: of a frontend.
    """

    __slots__ = ("_count", "_first", "_next", "_segment")

    def __init__(self, segment: Segment, lane: int) -> None:
        self._segment = segment
        self._count = segment.layout.traced
        self._first = segment.layout.traced_requests(lane)
        end = self._first + self._count * _SIZE
        # One that an owner died of while it wrote is written again.
        self._next = max(segment.words[first] // 2 for first in range(self._first, end, _SIZE))

    def put(self, request: RequestRecord) -> None:
        """Record a traced request that has ended."""
        first = self._first + self._next % self._count * _SIZE
        store(self._segment, first, request, 2 * self._next + 1)
        self._next += 1


class TracedReader:
    """Reads those of all lanes, each once, from the oldest on that is there when it begins.

    Attributes:
        lost: how many were overwritten since then before they were read.

    Args:
        segment: attached.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._next = [self._oldest(lane) for lane in range(segment.layout.frontend_lanes)]
        self.lost = 0

    def _oldest(self, lane: int) -> int:
        layout, words = self._segment.layout, self._segment.words
        start = layout.traced_requests(lane)
        end = start + layout.traced * _SIZE
        put = max([(words[first] + 1) // 2 for first in range(start, end, _SIZE)], default=0)
        return max(put - layout.traced, 0)

    def read(self) -> list[RequestRecord]:
        """Return the requests traced since the last call, in order within each lane."""
        return [request for lane in range(len(self._next)) for request in self._of(lane)]

    def _of(self, lane: int) -> list[RequestRecord]:
        layout, words = self._segment.layout, self._segment.words
        start, count, number = layout.traced_requests(lane), layout.traced, self._next[lane]
        found: list[RequestRecord] = []
        # A writer that is quicker does not hold the reader here: as many may be lost as there are,
        # one after the other, and then as many read.
        for _ in range(2 * count):
            first = start + number % count * _SIZE
            written = 2 * number + 2
            sequence = load_acquire(words, first)
            if sequence < written:
                break
            if sequence > written:
                # What stands in this place is written, or whole; the next place has the oldest.
                oldest = (sequence - 1) // 2 - count + 1
                self.lost += oldest - number
                number = oldest
                continue
            request = load(self._segment, first, written)
            if request is not None:
                found.append(request)
            elif words[first] == written:
                self.lost += 1
            else:
                continue
            number += 1
        self._next[lane] = number
        return found
