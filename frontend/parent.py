"""Dying with one's parent, so that a killed supervisor leaves no process behind."""

import ctypes
import os
import signal
from typing import Final

from ringbatch.shm.errors import StartupError

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent_pid: who the parent was when this process was started.

    Raises:
        StartupError: the parent is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise StartupError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    # It may have ended before the kernel was asked.
    if os.getppid() != parent_pid:
        raise StartupError("the process that started this one is gone")
