"""Child processes that end with their parent, however it ends.

A benchmark that SIGTERM or SIGKILL ends runs no code of its own any more. So the kernel sends its
children a signal then (PR_SET_PDEATHSIG, see prctl(2)). It does so when the thread ends that has
started them, so the main thread starts them.
"""

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_prctl: Final = ctypes.CDLL(None).prctl
"""Looked up here, because a forked child should do little."""


def tied(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """Return what ties a child to this process, as subprocess's `preexec_fn`.

    Args:
        number: the signal that ends the child in order.
    """
    return partial(_tie, os.getpid(), number)


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel end this process with its parent.

    Args:
        parent: the process id of the parent, which may have ended by now.
        number: the signal for it.
    """
    _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _tie(parent: int, number: signal.Signals) -> None:
    # A shell's background jobs ignore it, and a program that inherits that cannot be stopped.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent(parent, number)
