"""What a worker does so that a model which takes too much memory takes nobody with it."""

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO: Final = 500
"""Of 1000: where the kernel looks for a victim, half of all memory is added to what it has."""


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


def go_first() -> None:
    """Be who the kernel ends when the host or the cgroup is out of memory, not the collector or a
    frontend: a worker's requests are run again."""
    # A sandbox may have no /proc, or one that cannot be written.
    with suppress(OSError):
        _OOM_SCORE.write_text(str(_FIRST_TO_GO))
