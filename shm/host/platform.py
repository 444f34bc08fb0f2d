"""Supported processors, and whether the hot path is compiled.

The protocol says at each place which order it needs: release, acquire or a full fence
(`ringbatch.shm.fence`). These are known and tested for the processors below. They also load and
store aligned words of 8 bytes whole, which 32-bit programs do not.
"""

import platform
import sys

from ringbatch.shm import ring
from ringbatch.shm.errors import StartupError

SUPPORTED_MACHINES = frozenset({"x86_64", "AMD64", "aarch64", "arm64"})
"""Names that kernels give to x86-64 and to little-endian AArch64."""
SUPPORTED = "a 64-bit Python on x86-64 or AArch64"
"""Supported machines and Python, for messages."""


def is_supported(machine: str, largest_index: int = sys.maxsize) -> bool:
    """Return whether the protocol's order and whole words are known to hold.

    Args:
        machine: kind of processor, as the kernel names it.
        largest_index: of this Python, `sys.maxsize`. A 32-bit Python may run on a 64-bit kernel.
    """
    return machine in SUPPORTED_MACHINES and largest_index >= 1 << 32


def require_supported_machine(machine: str | None = None, largest_index: int = sys.maxsize) -> None:
    """Refuse to go on if a published word may be seen before what it publishes.

    Raises:
        StartupError: naming the machine found, and those supported.
    """
    machine = platform.machine() if machine is None else machine
    if not is_supported(machine, largest_index):
        bits = "" if largest_index >= 1 << 32 else " with a 32-bit Python"
        raise StartupError(
            f"this machine is {machine or 'of unknown kind'}{bits}; ringbatch needs "
            f"{SUPPORTED}, because its lock-free rings rely on the order of stores there"
        )


def is_compiled() -> bool:
    """Return whether the hot path was compiled at installation; see setup.py."""
    return not ring.__file__.endswith(".py")
