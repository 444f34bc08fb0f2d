"""Full memory fence, the only one that the protocol needs.

x86-64 keeps stores in order and loads in order, but a load may overtake an earlier store. In a
hand-shake each side stores and then loads: one stores that it has published and looks whether the
other sleeps; the other stores that it sleeps and looks for something published. Without a fence
each could miss the other's store, and a wake-up would be lost. Both fence between store and load.

Taking and dropping a lock executes a locked instruction, and on x86-64 no load passes one (Intel
SDM volume 3, section "Memory Ordering": locked instructions have a total order, and loads and
stores are not reordered with them). Elsewhere a lock is no full fence; ringbatch runs on x86-64
only, see ringbatch.shm.host.platform.
"""

import os
import threading
from typing import Final

_LOCK: Final = threading.Lock()
_take: Final = _LOCK.acquire
_drop: Final = _LOCK.release


def full_fence() -> None:
    """Let every earlier store be seen before any later load is done."""
    # A `with` takes twice as long.
    _take()
    _drop()


def _let_go() -> None:
    """Replace the lock in a forked child, since a thread of the parent may have held it."""
    if _LOCK.locked():
        _drop()


os.register_at_fork(after_in_child=_let_go)
