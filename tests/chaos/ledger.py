"""Ledger of a run: requests sent, their outcomes, and the law that balances them.

    sent = answered right + refused in words + broken with the frontend that was killed

Nothing comes twice, nothing is somebody else's, nothing is lost, and nothing comes later than
its deadline allows.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

GRACE_S = 0.1
"""Promised bound on the time from a deadline to its error."""
_KEPT_FAILURES = 50


def _never_late(_since: float) -> float:
    return 0.0


@dataclass
class Ledger:
    """Outcomes of the requests so far; times are seconds.

    Attributes:
        grace_s: time after its deadline within which a request may be answered.
        own_delay_s: the client's own delay, altogether, since an instant.
        sent: requests.
        right: answers that were what they had to be.
        refused: by status, the requests refused in words; of gRPC by the name of the code.
        broken: requests that were on a connection of a frontend when that was killed.
        failures: texts of the violations; `failed` is their number, the list is cut.
        slowest_s: the longest time to a right answer.
        stall_s: the longest time without any right answer.
        servers_stall_s: the longest, each less what the client itself was late meanwhile.
        expired: requests answered with their deadline's error.
        latest_s: the longest that one of these came after its deadline.
        late: number of answers later than the grace and the client's own delay allow.
        lag_s: the client's own longest delay.
        longest_gap_s: the longest time between two parts of an answer, less the client's delay.
    """

    grace_s: float = GRACE_S
    own_delay_s: Callable[[float], float] = _never_late
    sent: int = 0
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    slowest_s: float = 0.0
    stall_s: float = 0.0
    servers_stall_s: float = 0.0
    expired: int = 0
    latest_s: float = 0.0
    late: int = 0
    lag_s: float = 0.0
    longest_gap_s: float = 0.0
    _last_right: float | None = None

    def resume(self, now: float) -> None:
        """Begin to count the time without answers now, as no client has asked until now."""
        self._last_right = now

    def answered(self, sent_at: float, now: float) -> None:
        """Count a right answer."""
        self.right += 1
        self.slowest_s = max(self.slowest_s, now - sent_at)
        if self._last_right is not None:
            stall_s = now - self._last_right
            self.stall_s = max(self.stall_s, stall_s)
            if stall_s > self.servers_stall_s:
                stall_s -= self.own_delay_s(self._last_right)
                self.servers_stall_s = max(self.servers_stall_s, stall_s)
        self._last_right = now

    def overdue(self, late_s: float, excused_s: float, label: str) -> None:
        """Count an answer with a deadline's error, and note it if it came too late.

        Args:
            late_s: after the deadline.
            excused_s: part of that for which the client itself is to blame.
            label: of the request, for the failure.
        """
        self.expired += 1
        self.latest_s = max(self.latest_s, late_s - excused_s)
        if late_s > self.grace_s + excused_s:
            self.late += 1
            self.fail(f"{label}: {late_s:.3f} s after its deadline, {excused_s:.3f} s excused")

    def fail(self, words: str) -> None:
        """Note a violation."""
        self.failed += 1
        if len(self.failures) < _KEPT_FAILURES:
            self.failures.append(words)

    def balance(self) -> list[str]:
        """Return all violations, and behind them the sum if requests are unaccounted for."""
        found = list(self.failures)
        if self.failed > len(found):
            found.append(f"and {self.failed - len(found)} more")
        accounted = self.right + sum(self.refused.values()) + self.broken
        if not self.failed and accounted != self.sent:
            found.append(f"{self.sent} were sent and {accounted} accounted for")
        return found
