"""Average time of a model's batches, by the number of rows that they run with. Pure.

The end of a running batch is expected by it, so that a worker on a device gets its next batch just
before. The average over all sizes would not do: a batch of one row may end long before a full one.
"""

from typing import Final

SHARE: Final = 8
"""An average follows each batch by one part in this many."""
FAR: Final = 2
"""A batch counts no more than so many times the average, so that one stall does not move it."""


class SizeTimes:
    """Averages by size, in nanoseconds."""

    __slots__ = ("_averages_ns",)

    def __init__(self) -> None:
        self._averages_ns: dict[int, int] = {}

    def ran(self, rows: int, took_ns: int) -> None:
        """Record a batch of so many rows, with those that pad it."""
        average_ns = self._averages_ns.get(rows, 0)
        if average_ns:
            took_ns = average_ns + (min(took_ns, FAR * average_ns) - average_ns) // SHARE
        self._averages_ns[rows] = took_ns

    def of(self, rows: int) -> int:
        """Return how long a batch of so many rows takes; of the next larger if none ran.

        It is 0 if no batch of so many rows, or of more, has run.
        """
        sizes = [size for size in self._averages_ns if size >= rows]
        return self._averages_ns[min(sizes)] if sizes else 0
