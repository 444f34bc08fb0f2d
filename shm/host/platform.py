"""Supported processors, and whether the hot path is compiled.

Publishing is a plain store, so the processor must keep stores in program order, and loads too.
x86-64 does (total store order). AArch64 and others do not, and no pure-Python construct gives a
release store there: taking and dropping a lock is not a full barrier.
"""

import platform

from ringbatch.shm import ring
from ringbatch.shm.errors import StartupError

ORDERED_MACHINES = frozenset({"x86_64", "AMD64"})


def require_ordered_stores(machine: str | None = None) -> None:
    """Refuse to go on where a published word may be seen before what it publishes.

    Raises:
        StartupError: naming the machine found.
    """
    machine = platform.machine() if machine is None else machine
    if machine not in ORDERED_MACHINES:
        raise StartupError(
            f"this machine is {machine or 'of unknown kind'}; ringbatch needs x86-64, because its "
            "lock-free rings rely on a processor that keeps stores in order"
        )


def is_compiled() -> bool:
    """Return whether the hot path was compiled at installation; see setup.py."""
    return not ring.__file__.endswith(".py")
