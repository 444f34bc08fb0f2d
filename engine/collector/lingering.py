"""Wait of an eager batch for clients that are about to come back: an estimate. Pure.

Clients that wait for an answer before they send their next request come back together, moments
after a batch was answered. A batch that closes at once then holds only the first of them. From then
on two halves take turns, and each pays the fixed cost of a run. To wait for those who come back
makes one batch of the two, which saves a run.

That pays for a worker that is the only one, if runs have a fixed cost worth saving, and if
nearly all requests are of clients that come back. Requests that come independently are no more
likely after an answer than at any other time, and no batch waits for these.
"""

from collections.abc import Iterable
from typing import Final

from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.engine_slots import Request

COSTLY_NS: Final = 1_000_000
"""Fixed cost of a run from which a batch waits to save one."""
MOST_NS: Final = 5_000_000
"""Longest wait of a batch."""
_SAVED_SHARE: Final = 2
"""A batch waits at most for this part of what it would save."""
_RETURNING: Final = 0.75
"""Share of requests from clients that come back, from which a batch waits."""
_FOLLOW: Final = 4
"""Estimates follow what is seen by one part in this many."""
_SLOWER: Final = 16
"""Divisor of a step towards a slower run; faster runs count at once."""
_SEEN: Final = 2
"""Runs that a size needs to count; the first run of all may do one-time work."""


class RunCosts:
    """Run times by rows: the straight line nearest to the best time of each size.

    Sizes are taken together by powers of two. One that does not run for long keeps its time.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[int, float, float]] = {}
        """Runs, mean rows and lowest time in ns of batches, by the power of two of their rows."""

    def ran(self, rows: int, took_ns: int, times: int = 1) -> None:
        """Record that a batch of so many rows took so long, so many times."""
        power = rows.bit_length()
        count, mean_rows, best_ns = self._sizes.get(power, (0, float(rows), float(took_ns)))
        mean_rows += (rows - mean_rows) / _FOLLOW
        if took_ns > best_ns:
            best_ns += (took_ns - best_ns) / _SLOWER
        else:
            best_ns = float(took_ns)
        self._sizes[power] = (count + times, mean_rows, best_ns)

    @property
    def fixed_ns(self) -> int:
        """Fixed cost of a run; 0 if only one size is known."""
        points = [(rows, ns) for count, rows, ns in self._sizes.values() if count >= _SEEN]
        if len(points) < 2:
            return 0
        middle_rows = sum([rows for rows, _ in points]) / len(points)
        middle_ns = sum([ns for _, ns in points]) / len(points)
        spread = sum([(rows - middle_rows) ** 2 for rows, _ in points])
        common = sum([(rows - middle_rows) * (ns - middle_ns) for rows, ns in points])
        row_ns = max(common / spread, 0.0)
        return max(int(middle_ns - row_ns * middle_rows), 0)


class _Period:
    """The time from one answer to the next.

    Attributes:
        began_ns: when the batch was answered.
        until_ns: those who are accepted until then have come back.
        back_rows: they have brought.
        other_rows: that came later.
    """

    __slots__ = ("back_rows", "began_ns", "other_rows", "until_ns")

    def __init__(self, began_ns: int, until_ns: int) -> None:
        self.began_ns = began_ns
        self.until_ns = until_ns
        self.back_rows = 0
        self.other_rows = 0

    def came(self, rows: int, accepted_ns: int) -> None:
        """Count rows that were accepted in this period or before."""
        if self.began_ns < accepted_ns <= self.until_ns:
            self.back_rows += rows
        else:
            self.other_rows += rows


class Lingering:
    """Estimate for the clients of one model, fed with all its batches and requests.

    Attributes:
        watching: True if it needs the requests: runs cost enough.
    """

    __slots__ = ("_before", "_costs", "_expected_rows", "_now", "_returning", "watching")

    def __init__(self) -> None:
        self.watching = False
        self._costs = RunCosts()
        self._now = self._before = _Period(0, 0)
        self._returning = 0.0
        """Share of recently answered rows that came back as new requests."""
        self._expected_rows = 0.0
        """Rows that recently came back after a batch."""

    def learn(self, trials: Iterable[Trial]) -> None:
        """Take over what batches took in a warm-up."""
        for rows, _, took_ns in trials:
            self._costs.ran(rows, took_ns, _SEEN)

    def answered(self, rows: int, took_ns: int, now_ns: int) -> None:
        """Record an answered batch.

        Args:
            rows: of the batch.
            took_ns: from its dispatch to its report.
            now_ns: when its answers were posted.
        """
        # Requests of the period that ends now may still wait to be taken in.
        self._learn(self._before)
        self._costs.ran(rows, took_ns)
        fixed_ns = self._costs.fixed_ns
        self.watching = fixed_ns >= COSTLY_NS
        waits_ns = min(fixed_ns // _SAVED_SHARE, MOST_NS) if self.watching else 0
        self._before, self._now = self._now, _Period(now_ns, now_ns + waits_ns)

    def came(self, requests: Iterable[Request]) -> None:
        """Record requests that are taken in."""
        now, before = self._now, self._before
        for request in requests:
            accepted_ns = request.accepted_ns
            period = now if accepted_ns > now.began_ns else before
            period.came(request.rows, accepted_ns)

    @property
    def pays(self) -> bool:
        """True if runs cost enough to wait, and nearly all requests are of clients that return."""
        return self.watching and self._returning >= _RETURNING

    @property
    def until_ns(self) -> int:
        """Instant until which a batch waits.

        It lies in the past if a wait would not pay, or as many have come back as usually do.
        """
        period = self._now
        all_back = period.back_rows + 0.5 > self._expected_rows
        return 0 if all_back or self._returning < _RETURNING else period.until_ns

    def _learn(self, period: _Period) -> None:
        came_rows = period.back_rows + period.other_rows
        if came_rows and period.until_ns > period.began_ns:
            share = period.back_rows / came_rows
            self._returning += (share - self._returning) / _FOLLOW
            self._expected_rows += (period.back_rows - self._expected_rows) / _FOLLOW
