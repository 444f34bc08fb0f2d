"""The one full memory fence that the protocol needs.

x86-64 keeps stores in order and loads in order, but lets a load overtake an earlier store. Where
one side stores that it has published and then looks whether the other sleeps, while the other
stores that it sleeps and then looks for what was published, that would lose a wake-up: each
would miss the other's store. Both must fence between their store and their load.

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
    """In a forked child: a thread of the parent may have had the lock, and is not here to drop
    it."""
    if _LOCK.locked():
        _drop()


os.register_at_fork(after_in_child=_let_go)
