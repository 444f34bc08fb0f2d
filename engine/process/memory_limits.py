"""Memory of workers and frontends: limits, heap settings, order of out-of-memory kills.

A model that takes too much then takes no other process with it. A model that often takes and frees
much does not ask the kernel for it each time.
"""

import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO: Final = 500
"""Value for oom_score_adj, in thousandths of all memory. When the kernel chooses a victim, it adds
this half of all memory to the process's own."""

WORKER_HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
"""Freed memory that glibc's malloc keeps: blocks of up to 32 MiB, the most that it allows, and of
these up to 256 MiB at the end of the heap. See mallopt(3)."""
FRONTEND_HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 24),
}
"""The same for a frontend: blocks of up to 1 MiB, and of these up to 16 MiB. Larger bodies side by
side would leave gaps, and so take more than their budget."""


def heap_environment(environment: Mapping[str, str], heap: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that make malloc keep memory that a run or a request has freed.

    By default, malloc returns large blocks to the kernel after each use, and the kernel has to
    clear every page of them for the next one.

    Args:
        environment: the supervisor's; a variable set there is left alone.
        heap: the variables to set.
    """
    return {name: value for name, value in heap.items() if name not in environment}


def limit_memory(worker_memory_bytes: int) -> None:
    """Limit this process's memory; an allocation beyond the limit fails with MemoryError.

    Only writable memory of the process's own counts (RLIMIT_DATA). The shared segment, mapped files
    and the address space that GPU drivers reserve do not count. Each child process has the same
    limit for itself.

    Args:
        worker_memory_bytes: 0 for no limit.
    """
    if worker_memory_bytes:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = worker_memory_bytes
        if most != resource.RLIM_INFINITY:
            limit = min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def memory_words() -> str:
    """Return the part of a message about this process's memory limit; empty if there is none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"; this process may have {limit} bytes, see worker_memory_bytes"


def go_first() -> None:
    """Have the kernel kill this process first if the host or the cgroup is out of memory.

    Requests of a killed worker run again; the collector and frontends are harder to replace.
    """
    # A sandbox may have no /proc, or a read-only one.
    with suppress(OSError):
        _OOM_SCORE.write_text(str(_FIRST_TO_GO))
