"""Time that a batch leaves for its run before its earliest deadline. Pure.

A batch that leaves the average is late as often as a run takes longer than that. So it leaves the
time within which nearly all recent batches ran: the second longest of 32, roughly the 95th
percentile. One stalled batch does not move it. A slower model counts from its second slow batch
on, and a faster one after 64 batches at most.

Batches that close earlier are smaller, so the same requests take more of them. That costs nothing
while workers are idle half of the time or more. With less to spare, the average counts.
"""

from typing import Final

BLOCK: Final = 32
"""Batches of which the second longest counts, and over which the load is measured."""
SPARE: Final = 2
"""Batches close earlier while workers are busy for at most one part in this many of the time."""


class RunReserve:
    """Recent batches of one model, in blocks.

    Of two blocks, the current one and the last, the longer second longest batch counts. A batch
    costs a few comparisons.
    """

    __slots__ = (
        "_began_ns",
        "_busy_ns",
        "_left",
        "_longest_ns",
        "_most_ns",
        "_second_ns",
        "_spare",
    )

    def __init__(self) -> None:
        self._most_ns = 0
        """The second longest of the last block, or of the current one if that is longer."""
        self._longest_ns = self._second_ns = self._busy_ns = 0
        self._left = 1
        """Batches until the block is complete. The first, of one batch, only begins the others."""
        self._began_ns = 0
        """Start of the block in nanoseconds; 0 if that is unknown."""
        self._spare = False
        """True if workers had time to spare in the last block."""

    def ran(self, took_ns: int, average_ns: int, now_ns: int, workers: int) -> int:
        """Record a batch, and return the time to leave for a run.

        Args:
            took_ns: how long the batch took.
            average_ns: how long batches take on average.
            now_ns: when the batch ended.
            workers: how many run batches.
        """
        self._busy_ns += took_ns
        if took_ns > self._second_ns:
            if took_ns > self._longest_ns:
                self._longest_ns, took_ns = took_ns, self._longest_ns
            self._second_ns = took_ns
            if took_ns > self._most_ns:
                self._most_ns = took_ns
        self._left -= 1
        if not self._left:
            self._complete(now_ns, workers)
        return self._most_ns if self._spare else average_ns

    def _complete(self, now_ns: int, workers: int) -> None:
        """Begin another block, by the load of the one that is complete."""
        passed_ns = workers * (now_ns - self._began_ns)
        self._spare = self._began_ns > 0 and SPARE * self._busy_ns <= passed_ns
        self._began_ns, self._busy_ns = now_ns, 0
        self._most_ns = self._second_ns
        self._longest_ns = self._second_ns = 0
        self._left = BLOCK
