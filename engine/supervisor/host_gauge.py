"""Host gauge: estimates how many more workers the host has memory and CPU time for."""

from collections.abc import Callable, Iterable
from typing import Final

from ringbatch.engine.process import usage
from ringbatch.engine.process.usage import ProcessUsage
from ringbatch.engine.supervisor.scaling import Headroom
from ringbatch.shm.cpus import usable_cpus
from ringbatch.shm.scalings import Cause

LOOK_NS: Final = 1_000_000_000
"""Interval of looks at CPU time."""
KEPT_FREE: Final = 0.1
"""The share of the free memory that is left alone."""
PLENTY: Final = 1 << 10
_NS: Final = 1e-9


def room(free: int | None, own: int, cpus: float, used: float, each: float) -> Headroom:
    """Return how many more workers there is room for. Pure.

    Args:
        free: bytes of memory; None if unknown.
        own: the most bytes of one of the model's workers.
        cpus: that the engine may use.
        used: CPUs that all workers used recently.
        each: CPUs that one of the model's workers used.
    """
    memory = PLENTY if free is None or not own else int(free * (1 - KEPT_FREE)) // own
    left = PLENTY if not each else int(max(cpus - used, 0.0) / each + 0.5)
    return Headroom(memory, Cause.MEMORY) if memory <= left else Headroom(left, Cause.CPUS)


class HostGauge:
    """Gauge of the host's memory and CPU time, from repeated looks at processes.

    Args:
        usage_of: returns the usage of a process; None if it has ended.
        free_bytes: of memory; None if unknown.
        cpus: that the engine may use.
    """

    def __init__(
        self,
        usage_of: Callable[[int], ProcessUsage | None] = usage.usage,
        free_bytes: Callable[[], int | None] = usage.free_bytes,
        cpus: Callable[[], float] = usable_cpus,
    ) -> None:
        self._usage_of = usage_of
        self._free_bytes = free_bytes
        self._cpus = cpus
        self._looked_ns = -LOOK_NS
        self._found: dict[int, ProcessUsage] = {}
        self._taken: dict[int, float] = {}
        """CPUs that each process took between the last two looks."""

    def look(self, now_ns: int, pids: Iterable[int]) -> None:
        """Look at processes, if the last look is a while ago."""
        passed_ns = now_ns - self._looked_ns
        if passed_ns < LOOK_NS:
            return
        self._looked_ns, before = now_ns, self._found
        found = {pid: self._usage_of(pid) for pid in pids}
        self._found = {pid: own for pid, own in found.items() if own is not None}
        self._taken = {
            pid: max(own.cpu_s - before[pid].cpu_s, 0.0) / (passed_ns * _NS)
            for pid, own in self._found.items()
            if pid in before
        }

    @property
    def cpus(self) -> float:
        """CPUs that the engine may use."""
        return self._cpus()

    def room(
        self, pids: Iterable[int], starting: Iterable[tuple[Iterable[int], int]] = ()
    ) -> Headroom:
        """Return how many more workers there is room for.

        Args:
            pids: of the model's workers.
            starting: of other models, the pids of their workers, and how many more of these are
                being started. Their expected use counts as used.
        """
        own_bytes, own_cpus = self._each(pids)
        free, used = self._free_bytes(), sum(self._taken.values())
        for others, count in starting:
            their_bytes, their_cpus = self._each(others)
            free = None if free is None else max(free - count * their_bytes, 0)
            used += count * their_cpus
        return room(free, own_bytes, self._cpus(), used, own_cpus)

    def _each(self, pids: Iterable[int]) -> tuple[int, float]:
        """Return the most bytes of one of these workers, and their average CPUs."""
        pids = tuple(pids)
        own = [self._found[pid].own_bytes for pid in pids if pid in self._found]
        taken = [self._taken[pid] for pid in pids if pid in self._taken]
        return max(own, default=0), sum(taken) / len(taken) if taken else 0.0
