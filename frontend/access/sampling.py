"""Sampling: decides which requests are logged and traced. Pure; time and chance are arguments."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from ringbatch.frontend.codec.request_ids import is_sampled

Scope = Literal["off", "failures", "all"]
FAILURES_PER_S: Final = 10
"""Lines of failures a second in each process, in the long run."""
BURST: Final = 100
"""Lines of failures that may come at once after a quiet time."""
FIRST_FAILURE: Final = 400
"""The least status of one."""
SLOW_NS: Final = 1_000_000_000
"""The least duration of a slow request, if the settings name none."""
SLOW_TIMES: Final = 10
"""A slow request also takes longer than this many medians of its kind."""
_OF_HEALTH: Final = re.compile(
    r"/v2/health/(live|ready)|/v2/models/[^/]+(/versions/[^/]+)?/ready|/v1/models/[^/:]+"
)
LOGGED: Final = 1
TRACED: Final = 2
"""The samples that a request may be of, as bits."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Settings of the access log, response headers and traces.

    Attributes:
        scope: nothing; failures, within a rate; or these and a share of all others.
        sample: share of the other requests that is logged, 0 to 1.
        slower_than_ms: a longer request is logged too, unless the scope is "off"; 0 for none; None
            for requests longer than both `SLOW_NS` and `SLOW_TIMES` medians.
        server_timing: True if every answer has the header ``Server-Timing``.
        load_report: True if every answer has a report of the engine's load.
        trace_sample: if requests are traced, the share of those whose clients do not decide it,
            0 to 1.
    """

    scope: Scope = "off"
    sample: float = 1.0
    slower_than_ms: float | None = None
    server_timing: bool = False
    load_report: bool = False
    trace_sample: float = 0.0


def is_of_health(path: str, *, ours: bool) -> bool:
    """Return whether a path asks for health, as load balancers do all the time.

    Args:
        path: of a request that infers nothing.
        ours: whether ringbatch itself answers the request, not an application or another server.
    """
    return _OF_HEALTH.fullmatch(path) is not None or (ours and path == "/")


class Choice:
    """Decides for each request. Failures take from a bucket that fills with time.

    Attributes:
        slow_ns: the longest duration that is not slow; below 0 if no request counts as slow.

    Args:
        settings: settings of logs, headers and traces.
        now_ns: the time.
    """

    __slots__ = ("_by_median", "_filled_ns", "_left", "_off", "slow_ns")

    def __init__(self, settings: AccessSettings, now_ns: int) -> None:
        self._off = settings.scope == "off"
        slower_than_ms = settings.slower_than_ms
        self._by_median = slower_than_ms is None
        self.slow_ns = SLOW_NS if slower_than_ms is None else int(slower_than_ms * 1e6) or -1
        self._left = float(BURST)
        self._filled_ns = now_ns

    def takes(
        self, status: int, took_ns: int, now_ns: int, median_ns: Callable[[], int], *, drawn: bool
    ) -> bool | None:
        """Return whether a request is logged; None if only the rate limit is against it.

        Args:
            status: HTTP's.
            took_ns: from its first byte to its answer.
            now_ns: the time.
            median_ns: returns the median of requests of its kind; called only if it decides.
            drawn: True if it is in the sample.
        """
        if self._off:
            return False
        if drawn:
            return True
        if status < FIRST_FAILURE and not self._is_slow(took_ns, median_ns):
            return False
        elapsed_ns, self._filled_ns = now_ns - self._filled_ns, now_ns
        self._left = min(self._left + elapsed_ns * FAILURES_PER_S / 1e9, BURST)
        if self._left < 1:
            return None
        self._left -= 1
        return True

    def _is_slow(self, took_ns: int, median_ns: Callable[[], int]) -> bool:
        if self.slow_ns < 0 or took_ns <= self.slow_ns:
            return False
        return not self._by_median or took_ns > SLOW_TIMES * median_ns()


class Draw:
    """Draws a sample, by how many are left out before the next: nearly free for these.

    Attributes:
        left_out: so many of those to come; below 0 if that is all.

    Args:
        share: part of the requests to draw, 0 to 1.
        chance: random numbers, from 0 up to 1.
    """

    __slots__ = ("_chance", "_share", "left_out")

    def __init__(self, share: float, chance: Callable[[], float]) -> None:
        self._share = share
        self._chance = chance
        self.left_out = self._gap()

    def hits(self) -> bool:
        """Return whether this one is in the sample."""
        if self.left_out:
            self.left_out -= 1
            return False
        self.left_out = self._gap()
        return True

    def _gap(self) -> int:
        if self._share >= 1:
            return 0
        if self._share <= 0:
            return -1
        # So many independent draws in a row miss, by the inverse of their distribution.
        return int(math.log1p(-self._chance()) / math.log1p(-self._share))


class Samples:
    """Sampling of requests: decides which are logged and which are traced.

    Args:
        logged: draws those that are logged; None if none are for that.
        traced: draws those that are traced; None if none are traced at all.
    """

    __slots__ = ("_logged", "_traced")

    def __init__(self, logged: Draw | None, traced: Draw | None) -> None:
        self._logged = logged
        self._traced = traced

    def of(self, trace: bytes) -> int:
        """Return the samples that the next request is in; to be called once for each request.

        Args:
            trace: its sound ``traceparent``, which says whether it is traced; empty if there is
                none.
        """
        found, logged = 0, self._logged
        if logged is not None:
            # As `hits` does: for most requests its call would be half of what this takes.
            if logged.left_out:
                logged.left_out -= 1
            elif logged.hits():
                found = LOGGED
        if self._traced is not None and (is_sampled(trace) if trace else self._traced.hits()):
            found |= TRACED
        return found
