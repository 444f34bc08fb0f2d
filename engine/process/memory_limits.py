"""What a worker may have of memory: so that a model which takes too much takes nobody with it, and
one that takes much again and again does not ask the kernel for it each time."""

import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO: Final = 500
"""Of 1000: where the kernel looks for a victim, half of all memory is added to what it has."""

WORKER_HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
}
"""What glibc's malloc keeps when it is freed: blocks of up to 32 MiB, the most that it allows, and
of these up to 256 MiB at the end of the heap. See mallopt(3)."""
FRONTEND_HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 24),
}
"""The same of a frontend: blocks of up to 1 MiB, and of these up to 16 MiB. Larger bodies that come
side by side would leave gaps between them, and so take more than their budget."""


def heap_environment(environment: Mapping[str, str], heap: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to the environment of a worker or a frontend so that memory which a run
    or a request has freed is there for the next.

    Left to itself, malloc returns large blocks to the kernel after each, which has to clear every
    page of them for the next one.

    Args:
        environment: that of the supervisor; a variable set there is left alone.
        heap: what is to be kept.
    """
    return {name: value for name, value in heap.items() if name not in environment}


def limit_memory(worker_memory_bytes: int) -> None:
    """Have no more memory than this; what is asked for beyond it fails with MemoryError.

    Only memory of the process's own is counted, and only where it can be written (RLIMIT_DATA):
    neither the shared segment, nor files that are mapped, nor the address space that GPU drivers
    reserve. Child processes have the limit as well, each for itself.

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
    """What a message says of the limit on this process's memory; empty where there is none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"; this process may have {limit} bytes, see worker_memory_bytes"


def go_first() -> None:
    """Be who the kernel ends when the host or the cgroup is out of memory, not the collector or a
    frontend: a worker's requests are run again."""
    # A sandbox may have no /proc, or one that cannot be written.
    with suppress(OSError):
        _OOM_SCORE.write_text(str(_FIRST_TO_GO))
