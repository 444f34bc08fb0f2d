"""Reports of the workers: the collector looks only at rings that may have some."""

from collections.abc import Mapping
from typing import Final

from ringbatch.shm.descriptors import REPORT_WORDS
from ringbatch.shm.layout import Layout, ring_size
from ringbatch.shm.ring import Inbox

SWEEP_NS: Final = 1_000_000_000
"""Time between two looks at the rings of all workers."""
_LOOKS: Final = 64
"""A look at this many rings together costs as much as a look at a single ring."""


class Reports:
    """Reader of the workers' reports.

    A worker reports the batches that it holds, and once that it is ready. If there are places for
    many workers, the reader checks the rings of all others only every `SWEEP_NS`. It does so
    because a worker that has left the table may still report that it is ready.

    Attributes:
        inbox: all rings.

    Args:
        words: the segment as a memoryview of format ``Q``.
        layout: layout of the segment.
        holding: the workers that hold a batch, by number.
        expected: the workers that may report though they hold none.
    """

    def __init__(
        self, words: memoryview, layout: Layout, holding: Mapping[int, int], expected: set[int]
    ) -> None:
        self._places = places = layout.workers
        self._few = places <= _LOOKS
        self._holding = holding
        self._expected = expected
        self._sweep_ns = 0
        self.inbox = Inbox(
            words, layout.reports_word, ring_size(REPORT_WORDS), places, REPORT_WORDS
        )

    def take(self, now_ns: int) -> list[tuple[int, list[int] | None]]:
        """Remove and return the reports of workers that may have some, as `Inbox.take` does."""
        if self._few:
            return self.inbox.take()
        among = self._among()
        if among is not None and now_ns < self._sweep_ns:
            return self.inbox.take_from(among)
        self._sweep_ns = now_ns + SWEEP_NS
        return self.inbox.take()

    @property
    def has_items(self) -> bool:
        """True if one of these workers has reported."""
        among = None if self._few else self._among()
        return self.inbox.has_items if among is None else self.inbox.waits_in(among)

    def _among(self) -> list[int] | None:
        """Return the workers that may have reported; None if a look at all costs no more."""
        if (len(self._holding) + len(self._expected)) * _LOOKS >= self._places:
            return None
        # Iteration over a set that was once large takes long, even if it is empty now.
        return [*self._holding, *self._expected] if self._expected else [*self._holding]
