"""Start of a process, common to every role."""

import atexit
import ctypes
import gc
import logging
import os
import signal
import sys
from typing import Final

from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.log_handler import LogHandler, writing_to
from ringbatch.shm.host.log_lines import formatter
from ringbatch.shm.host.own_log import keep

STDERR: Final = 2
OPERATORS_SIGNALS: Final = (
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""Signals by which operators tell servers to read files again, open logs anew, upgrade, or change
the number of workers. A process without a handler for one ends or stops."""
_PR_SET_PDEATHSIG: Final = 1
_COLLECT_AFTER: Final = 50_000
"""Allocations between two runs of the garbage collector. A request's objects go when the last
reference does; the collector, which looks for cycles, would find none and cost every request."""


def log_to_stderr(role: str, level: str) -> None:
    """Log to standard error, with the role in each line.

    The log drops lines that standard error does not take, because its reader is gone or the disk
    is full. Models, applications and libraries may configure `logging` for themselves, or redirect
    the descriptor: ringbatch's loggers have another, and a handler of their own.

    Args:
        role: of this process.
        level: of ringbatch's loggers. Libraries never log below info: at debug they quote clients'
            data, keys included.
    """
    atexit.register(_give_up_unwritten)
    chosen = logging.getLevelNamesMapping()[level.upper()]
    others = LogHandler(formatter(role, os.environ, STDERR), writing_to(STDERR))
    logging.basicConfig(level=max(chosen, logging.INFO), handlers=[others])
    own = os.dup(STDERR)
    keep(LogHandler(formatter(role, os.environ, own), writing_to(own, STDERR)), chosen)


def _give_up_unwritten() -> None:
    # In a buffer it would have Python end with another status than it was given.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())
        except AttributeError:
            # If it was closed when Python started, it is None. It may also be a model's object.
            setattr(sys, name, None)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends.

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


def leave_signals_to_supervisor() -> None:
    """Ignore Ctrl-C and `OPERATORS_SIGNALS`, which the supervisor handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pass_over_operators_signals()


def pass_over_operators_signals() -> None:
    """Go on when `OPERATORS_SIGNALS` come, as ``pkill -HUP -f ringbatch`` sends every process one.

    Programs that this process executes have the default ways again.
    """
    for number in OPERATORS_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
        # What a model waits for in the kernel goes on.
        signal.siginterrupt(number, False)


def settle() -> None:
    """Take everything made so far out of the garbage collector's sight, and have it look rarely.

    What lives after start-up lives until the end; a full collection of it in the middle of a batch
    costs milliseconds and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
