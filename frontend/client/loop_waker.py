"""Waker of coroutines: the threads that find parts wake an event loop once for all of them."""

import asyncio
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol


class Notified(Protocol):
    """Interface of a request that a coroutine waits for."""

    def notify(self) -> None:
        """Wake the coroutine, if it waits; called on its loop."""


class LoopWaker:
    """Waker of the coroutines of an event loop.

    Any thread adds requests, and the loop takes them. A thread that finds the flag set leaves the
    wake-up to the one that set it. The loop takes the flag away before it looks, so it finds what
    was added then.

    Args:
        loop: of the coroutines.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._requests: deque[Notified] = deque()
        self._is_due = False

    def add(self, request: Notified) -> None:
        """Have the loop notify a request; by any thread."""
        self._requests.append(request)
        self._wake_loop()

    def add_all(self, requests: Iterable[Notified]) -> None:
        """Do as `add` for several requests."""
        self._requests.extend(requests)
        self._wake_loop()

    def _wake_loop(self) -> None:
        if not self._is_due:
            self._is_due = True
            # A loop that is closed has no coroutines.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_due = False
        requests = self._requests
        try:
            # Those that come from here on wait for the next call, behind others of the loop.
            for _ in range(len(requests)):
                # A coroutine may run its loop within, as a notebook does.
                if requests:
                    requests.popleft().notify()
        except BaseException:
            # One coroutine has ended the loop, which may run again for the others.
            if requests:
                self._wake_loop()
            raise


_WAKERS: Final[weakref.WeakValueDictionary[asyncio.AbstractEventLoop, LoopWaker]] = (
    weakref.WeakValueDictionary()
)
"""The waker of each loop that has requests."""


def running_waker() -> LoopWaker:
    """Return the waker of the loop that runs in this thread.

    Raises:
        RuntimeError: none runs.
    """
    loop = asyncio.get_running_loop()
    waker = _WAKERS.get(loop)
    if waker is None:
        waker = _WAKERS[loop] = LoopWaker(loop)
    return waker
