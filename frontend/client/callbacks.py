"""Callbacks for a client's answers, which may run functions of the program."""

import threading
from collections import deque
from contextlib import suppress
from typing import Final

from ringbatch.frontend.client.waiter import Waiter

PATIENCE_S: Final = 1.0
"""Longest wait for functions of the program that other threads run."""


class CallbackQueue:
    """Waiters that are over and have not been resolved, in order. True where there are any."""

    def __init__(self) -> None:
        self._over: deque[Waiter] = deque()
        self._delivering: set[int] = set()
        self._delivered = threading.Condition()
        self._waiting = 0
        """Threads that wait for `_delivered`; delivering takes its lock for them alone."""

    def __bool__(self) -> bool:
        return bool(self._over)

    def add(self, waiter: Waiter) -> None:
        """Add a waiter that is over."""
        self._over.append(waiter)

    def deliver(self) -> None:
        """Resolve all waiters, without the channel's lock: functions of the program run here.

        Called by one of these, it leaves what is left to the call that is under way: each of many
        functions may send a request, and they would stand on top of one another.
        """
        if self._over and (thread := threading.get_ident()) not in self._delivering:
            try:
                self._delivering.add(thread)
                self._resolve()
            finally:
                self._delivering.discard(thread)
                if self._waiting:
                    with self._delivered:
                        self._delivered.notify_all()

    def wait_for_others(self, limit_s: float = PATIENCE_S) -> None:
        """Wait until no other thread runs functions of the program.

        A thread that runs one itself does not wait, because another may wait for it.

        Args:
            limit_s: the longest wait, as a function may need a lock that the caller holds.
        """
        if threading.get_ident() in self._delivering:
            return
        with self._delivered:
            self._waiting += 1
            try:
                self._delivered.wait_for(lambda: not self._delivering, limit_s)
            finally:
                self._waiting -= 1

    def _resolve(self) -> None:
        taken: list[Waiter] = []
        # In one call of C, a waiter goes from the queue to the list. Python handles signals between
        # two calls, and a KeyboardInterrupt there would lose a waiter that is in neither.
        take = map(taken.append, iter(self._over.popleft, None))
        try:
            while self._over:
                with suppress(IndexError):  # another thread was faster
                    next(take)
                for waiter in taken:
                    waiter.resolve()
                taken.clear()
        except BaseException:
            # A function that ends its thread ends no more than that.
            try:
                # It does nothing if the waiter had come so far.
                for waiter in taken:
                    waiter.resolve()
            finally:
                self._resolve()
            raise
