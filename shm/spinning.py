"""Adaptive spinning: a process watches for an event that usually comes soon, instead of sleeping.

To wake a process on an idle core takes several times as long as most steps of one request, on a
virtual machine above all. A process that watches needs no waking. It keeps its core, for a fraction
of a millisecond at most. If it yielded the core at every look, Linux would charge it for the time,
and soon have it wait long behind others.
"""

import time
from collections.abc import Callable
from typing import Final

from ringbatch.shm.cpus import usable_cpus
from ringbatch.shm.wakeup import Wakeup

_SHARE: Final = 8
"""The usual wait follows the latest by one part in this many."""
_LONGEST: Final = 8
"""A wait counts as no longer than this many times the limit, so that it is soon forgotten."""


def where_cpus_allow(limit_ns: int) -> int:
    """Return the limit of a `SpinPolicy`; 0 on a single CPU, as spinning would block the peer."""
    return limit_ns if usable_cpus() > 1 else 0


class SpinPolicy:
    """Estimate of whether spinning pays: whether events usually come within a limit.

    Args:
        limit_ns: the longest spin; 0 if spinning never pays.
    """

    def __init__(self, limit_ns: int) -> None:
        self.limit_ns = limit_ns
        self._usual_ns = 0

    @property
    def pays(self) -> bool:
        """True if spinning is expected to pay off."""
        return self._usual_ns < self.limit_ns

    def learn(self, waited_ns: int) -> None:
        """Take a wait into account."""
        longest_ns = self.limit_ns * _LONGEST
        self._usual_ns += (min(waited_ns, longest_ns) - self._usual_ns) // _SHARE


class SpinningWaiter:
    """Waiter at a doorbell that watches it before it sleeps, if rings usually come soon.

    Args:
        doorbell: the waiter's.
        limit_ns: as of `SpinPolicy`.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        doorbell: Wakeup,
        limit_ns: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._doorbell = doorbell
        self._policy = SpinPolicy(limit_ns)
        self._clock_ns = clock_ns

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait as `Wakeup.wait` does; the timeout begins after the time of watching."""
        began_ns = self._clock_ns()
        if self._policy.pays:
            until_ns = began_ns + self._policy.limit_ns
            while not self._doorbell.rung and self._clock_ns() < until_ns:
                pass
        rung = self._doorbell.wait(timeout_s)
        self._policy.learn(self._clock_ns() - began_ns)
        return rung
