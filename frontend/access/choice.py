"""Which requests are logged: a decision on values, with the time passed in."""

from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["off", "failures", "all"]
FAILURES_PER_S: Final = 10
"""Lines of failures a second in each process, in the long run."""
BURST: Final = 100
"""Lines of failures that may come at once after a quiet time."""
FIRST_FAILURE: Final = 400
"""The least status of one."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What is to be logged.

    Attributes:
        scope: nothing; failures, within a rate; or these and a share of all others.
        sample: that share, 0 to 1.
        slower_than_ms: a request that took longer is logged too, unless nothing is; 0 for none.
        server_timing: whether every answer tells its client where the time went.
    """

    scope: Scope = "off"
    sample: float = 1.0
    slower_than_ms: float = 0.0
    server_timing: bool = False


class Choice:
    """Decides for each request. Failures take from a bucket that fills with time.

    Args:
        settings: what is wanted.
        now_ns: the time.
    """

    __slots__ = ("_all", "_filled_ns", "_left", "_off", "_sample", "_slow_ns")

    def __init__(self, settings: AccessSettings, now_ns: int) -> None:
        self._off = settings.scope == "off"
        self._all = settings.scope == "all"
        self._sample = settings.sample
        self._slow_ns = int(settings.slower_than_ms * 1e6)
        self._left = float(BURST)
        self._filled_ns = now_ns

    def may(self, status: int) -> bool:
        """Whether a request that ended so can be logged at all, whatever it took: what `takes` is
        asked for then."""
        return not self._off and (self._all or status >= FIRST_FAILURE or self._slow_ns > 0)

    def takes(self, status: int, took_ns: int, now_ns: int, chance: float) -> bool | None:
        """Whether a request is logged; None where only the rate of failures speaks against it.

        Args:
            status: HTTP's.
            took_ns: from its first byte to its answer.
            now_ns: the time.
            chance: random, from 0 up to 1.
        """
        if self._off:
            return False
        if self._all and chance < self._sample:
            return True
        failed, slow = status >= FIRST_FAILURE, 0 < self._slow_ns < took_ns
        if not failed and not slow:
            return False
        elapsed_ns, self._filled_ns = now_ns - self._filled_ns, now_ns
        self._left = min(self._left + elapsed_ns * FAILURES_PER_S / 1e9, BURST)
        if self._left < 1:
            return None
        self._left -= 1
        return True
