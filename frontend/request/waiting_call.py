"""Calls that wait for a thread or the offload process before they enter the pipeline."""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.task import Engine, guess
from ringbatch.shm.counters import LaneCounter

T = TypeVar("T")


class WaitingCall(ABC, Generic[T]):
    """A `RequestHandle` whose request waits for work; a subclass says how it goes on.

    Args:
        engine: of this process.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._call: RequestHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def holds(self) -> tuple[int, int]:
        """As in `RequestHandle`; a guess, as nobody knows before the work is done."""
        return guess(self._engine)

    @property
    def is_wanted(self) -> bool:
        """True while the client waits and its time is not over."""
        return not self._over

    def abandon(self) -> None:
        """As in `RequestHandle`."""
        if self._call is not None:
            self._call.abandon()
        elif not self._over:
            self._end()
            self._left()

    def _wait(self, future: "asyncio.Future[T | None]", limit_s: float | None) -> None:
        """Go on once the work is done, or too late.

        Args:
            future: the result; None if it was no longer wanted.
            limit_s: seconds until it is too late; None if nothing is.
        """
        future.add_done_callback(self._done)
        if limit_s is not None and not self._over:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._expire)

    @abstractmethod
    def _left(self) -> None:
        """Count a request whose client has left."""

    @abstractmethod
    def _is_late(self) -> None:
        """Refuse a request whose time is over."""

    @abstractmethod
    def _go_on_with(self, future: "asyncio.Future[T | None]") -> RequestHandle | None:
        """Send a request on its way, or refuse it, with the result of the work."""

    def _end(self) -> None:
        self._over = True
        if self._timer is not None:
            # Else it would hold the request until its deadline.
            self._timer.cancel()

    def _expire(self) -> None:
        self._end()
        self._engine.lane.counters.add(LaneCounter.TIMEOUTS)
        self._is_late()

    def _done(self, future: "asyncio.Future[T | None]") -> None:
        if self._over:
            # Else asyncio would complain that nobody has asked how it ended.
            future.exception()
            return
        self._end()
        self._call = self._go_on_with(future)
