"""What every process of the engine does first, whatever its role."""

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from setproctitle import setproctitle

from ringbatch.engine.messages import ControlSocket

_GC_THRESHOLD = 50_000
_PR_SET_PDEATHSIG = 1


def begin(title: str, log_level: str) -> None:
    """Name the process, log to standard error, leave Ctrl-C to the supervisor."""
    setproctitle(f"ringbatch: {title}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr,
        level=log_level.upper(),
        format=f"%(asctime)s ringbatch {title} [%(process)d] %(levelname)s %(message)s",
    )


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent ends, however it ends: the kernel sees to it.

    Args:
        parent_pid: who the parent was when this process was started; where it is another by
            now, the parent has gone already and so does this process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def settle() -> None:
    """Take everything made so far out of the garbage collector's sight.

    What lives after start-up lives until the end; a full collection of it in the middle of a
    batch costs milliseconds and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def watch(
    control: ControlSocket,
    on_message: Callable[[dict[str, Any]], None],
    on_end: Callable[[], None],
) -> None:
    """Read the supervisor's messages in a thread of their own; `on_end` when it is gone."""

    def read() -> None:
        while (messages := control.receive()) is not None:
            for message in messages:
                on_message(message)
        on_end()

    threading.Thread(target=read, name="control", daemon=True).start()
