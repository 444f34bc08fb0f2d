"""Average time of a model's batches, which a single outlier hardly moves. Pure.

Clients are refused by this average, so one stalled batch must not make a quick model look slow, and
a model that has become slow must soon look slow. A batch that takes far longer or far less than
others departs. One departure counts no more than `FAR` times the average. The next one in the same
direction confirms it and counts in full; a short one brings the average near it at once. Batches
that ran side by side may share one stall, so of these only the first counts.
"""

from dataclasses import dataclass
from typing import Final

SHARE: Final = 8
"""The average follows each batch by one part in this many."""
FAR: Final = 8
"""A batch that takes over so many times as long as the average departs, or that many times less."""


@dataclass(slots=True)
class Departures:
    """Recent departures of batches from the average.

    Attributes:
        direction: of the last batch, 1 for longer and -1 for shorter; 0 if it did not depart.
        until_ns: when the last long batch ended that nothing confirmed. A batch that began earlier
            does not count if it took longer than the average.
        doubtful: True if the next batch is to be followed by this, even if it does not depart.
        alone: True if the average is that of a single batch, which may have been the one out of the
            ordinary. A shorter one is then believed at once.
    """

    direction: int = 0
    until_ns: int = 0
    doubtful: bool = True
    alone: bool = False

    def followed(self, average_ns: int, took_ns: int, began_ns: int, now_ns: int) -> int:
        """Return the new average.

        Args:
            average_ns: before; 0 if nothing is known.
            took_ns: how long a batch took.
            began_ns: when it began.
            now_ns: when it ended.
        """
        if not average_ns:
            self.alone = True
            return took_ns
        early = began_ns < self.until_ns
        if early and took_ns > average_ns:
            return average_ns
        direction = int(took_ns > FAR * average_ns) - int(FAR * took_ns < average_ns)
        confirmed = direction == self.direction or (direction < 0 and self.alone)
        self.alone = False
        self.doubtful = early or direction != 0
        if direction == 0 or confirmed:
            self.direction = 0
            if direction < 0:
                return FAR * took_ns
        else:
            self.direction = direction
            if direction > 0:
                self.until_ns = now_ns
            took_ns = FAR * average_ns if direction > 0 else average_ns // FAR
        return average_ns + (took_ns - average_ns) // SHARE
