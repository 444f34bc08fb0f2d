"""Slowdown of a model against its warm-up, and the number of batches that a request takes. Pure.

Like is compared with like: a batch with what one of its size took in warm-up. So whether much or
little is asked of a model makes it neither slow nor quick.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ringbatch.frontend.load.rolling_window import Window

WarmUp = Sequence[tuple[int, int, int]]
"""Trials of a worker: rows, the size of the open dimensions and nanoseconds of each batch, as
`ringbatch.shm.cost_profile` has them."""
Runs = Mapping[int, tuple[int, int]]
"""Counts by rows: how many batches, and how long they ran in nanoseconds."""

UNNOTICED_NS: Final = 250_000
"""Time that is added to both sides for each batch. A model of microseconds takes twice as long if
caches are cold, and no client notices."""
WINDOW_NS: Final = 100_000_000
"""Shortest time over which batches are compared with warm-up."""
LOOKS: Final = 2
"""Number of such windows of which the least slowdown counts: one batch that stalled makes no slow
engine."""
FOLLOW_NS: Final = 1_000_000_000
"""Time constant of the average number of batches that a request takes."""


class Baseline:
    """Times of batches in warm-up, by their rows.

    Of several lengths the longest counts, and of several workers the mean: a model with long
    requests is not slow for that.

    Args:
        warm_ups: of each worker.
        padded: True if batches are filled up to the next size that was tried.
    """

    def __init__(self, warm_ups: Iterable[WarmUp], *, padded: bool) -> None:
        found: dict[int, list[int]] = {}
        for trials in warm_ups:
            longest: dict[int, int] = {}
            for rows, _, run_ns in trials:
                longest[rows] = max(longest.get(rows, 0), run_ns)
            for rows, run_ns in longest.items():
                found.setdefault(rows, []).append(run_ns)
        self._points = [(rows, sum(times) / len(times)) for rows, times in sorted(found.items())]
        self._padded = padded

    def run_ns(self, rows: int) -> float:
        """Return the time of a batch, interpolated between the sizes next to it; 0 without any.

        Beyond all sizes it is in proportion, so that no model is called slow for a size that was
        not tried.
        """
        points = self._points
        index = bisect_left(points, (rows, 0.0))
        if index == len(points):
            return points[-1][1] * rows / points[-1][0] if points else 0.0
        more, more_ns = points[index]
        if index == 0 or self._padded:
            return more_ns
        less, less_ns = points[index - 1]
        return less_ns + (rows - less) / (more - less) * (more_ns - less_ns)

    def slowdown(self, before: Runs, now: Runs) -> float:
        """Return how much slower batches ran between two samples than in warm-up.

        Returns:
            At least 1; 0 if no batch ran, or their sizes are unknown.
        """
        if not self._points:
            return 0.0
        took_ns = usual_ns = 0.0
        for rows, (batches, run_ns) in now.items():
            batches_before, run_ns_before = before.get(rows, (0, 0))
            ran = batches - batches_before
            if ran:
                took_ns += run_ns - run_ns_before + ran * UNNOTICED_NS
                usual_ns += ran * (self.run_ns(rows) + UNNOTICED_NS)
        # Counts begin anew if another model takes over the place of one.
        return max(took_ns / usual_ns, 1.0) if usual_ns > 0 else 0.0


class Pace(NamedTuple):
    """Slowdown and queue of a model.

    Attributes:
        slowdown: as `Baseline` has it; 1 if it is not known to be slow.
        batches: until a request that comes now is answered, its own among them; 0 if a worker
            is free.
    """

    slowdown: float
    batches: float


class SlowdownFollower:
    """Tells how one model fares, by what is seen of it now and then."""

    def __init__(self) -> None:
        self._window: Window[Runs] = Window(WINDOW_NS)
        self._slowdowns = deque([1.0] * LOOKS, LOOKS)
        self._batches = 0.0
        self._looked_ns: int | None = None

    def look(self, at_ns: int, baseline: Baseline, runs: Runs, batches: float) -> Pace:
        """Return the slowdown and the queue of a model.

        Args:
            at_ns: the time.
            baseline: the model's times in warm-up.
            runs: that have been counted.
            batches: until a request would be answered that comes at this instant.
        """
        slowdown = baseline.slowdown(self._window.look(at_ns, runs), runs)
        if slowdown:
            self._slowdowns.append(slowdown)
        if self._looked_ns is None:
            self._batches = batches
        else:
            passed = max(at_ns - self._looked_ns, 0) / FOLLOW_NS
            self._batches = batches + (self._batches - batches) * math.exp(-passed)
        self._looked_ns = at_ns
        return Pace(min(self._slowdowns), self._batches)
