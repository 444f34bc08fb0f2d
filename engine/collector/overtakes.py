"""Memory of the batches of one order, which tells since when a request is overtaken. Pure."""

from bisect import bisect_left
from typing import Final

_MOST_TURNS: Final = 1024
"""The most batches that are remembered."""
_PRECISION: Final = 32
"""Resolution in age of remembered batches: of two whose ages differ by less than one part in this
number, only the later is kept."""


class Overtakes:
    """Turns of an order: how far each batch has reached into the order of arrivals.

    A request is overtaken at the end of the first turn in which a later one went.

    Attributes:
        reached: the latest place of a request in a batch; 0 before the first batch.
    """

    __slots__ = ("_latest", "_turns", "reached")

    def __init__(self) -> None:
        self.reached = 0
        self._latest = 0
        """The latest place of a request that has gone, also in a batch that still grows."""
        self._turns: list[tuple[int, int]] = []
        """Place and time in ns of each batch with a request later than all that went before."""

    def __len__(self) -> int:
        """Return the number of remembered batches."""
        return len(self._turns)

    def goes(self, place: int) -> None:
        """Note that the request of a place goes into the batch that ends next."""
        if place > self._latest:
            self._latest = place

    def end_turn(self, now_ns: int) -> None:
        """Note that what has gone since the last call makes a batch."""
        if self._latest > self.reached:
            self.reached = self._latest
            self._turns.append((self._latest, now_ns))
            if len(self._turns) == _MOST_TURNS:
                self._turns = _thinned(self._turns)

    def since_ns(self, place: int) -> int:
        """Return since when the request of a place, lower than `reached`, is overtaken."""
        return self._turns[bisect_left(self._turns, (place + 1, 0))][1]


def _thinned(turns: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return turns without those that are hardly older than the next.

    Who was overtaken in one of these seems to be overtaken a little later, and never sooner.
    """
    last, now_ns = turns[-1], turns[-1][1]
    kept = [last]
    for turn in reversed(turns):
        if (kept[-1][1] - turn[1]) * _PRECISION > now_ns - turn[1]:
            kept.append(turn)
    kept.reverse()
    return kept
