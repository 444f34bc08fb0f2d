"""Waiters for answers in a client, and their errors."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import RequestError
from ringbatch.shm.lane import Lane


class Together(Protocol):
    """Group of waiters whose parts are handed out together."""

    def hand_out(self, waiters: "Mapping[int, Waiter]", lane: Lane, now_ns: int) -> list[int]:
        """Hand out a part to each waiter, if possible; return the slots that may have others.

        Args:
            waiters: of the group, by slot.
            lane: of the slots.
            now_ns: the time.
        """


class Waiter:
    """Owner of requests in the lane. But for `ready`, all of it is touched under the lock alone.

    Attributes:
        ready: True while its thread has nothing to wait for.
        deadline_ns: when it fails, on the monotonic clock.
        account: the account word of its requests, of which the class counts.
        asleep: True while its thread sleeps on `signal`, which a thread that wakes it releases;
            made when it first sleeps so.
        deferred: True if no thread waits for it, so that the channel's own thread must.
        in_parts: True if it wants its answer in parts.
        together: the group with which it gets its parts; None if it gets them alone.
    """

    __slots__ = ("__weakref__", "account", "asleep", "deadline_ns", "ready", "signal", "together")
    deferred: bool = False
    in_parts: bool = False

    def __init__(self, deadline_ns: int, account: int = NOBODY) -> None:
        self.ready = False
        self.deadline_ns = deadline_ns
        self.account = account
        self.asleep = False
        self.signal: threading.Lock | None = None
        self.together: Together | None = None

    @property
    def until_ns(self) -> int:
        """Deadline of the whole answer. `deadline_ns` may be earlier: it moves with each part."""
        return self.deadline_ns

    def advance(self) -> None:
        """Send requests that can be sent now."""

    def answered(self, slot: int) -> None:
        """Read the answer in the slot, and release the slot.

        It does so even if it has failed over an answer that came together with this one.
        """

    def has_parts(self, slot: int) -> None:
        """Take the parts in the slot, of an answer that is not all there."""

    def fail(self, error: RequestError) -> None:
        """Fail the request, and want no further answer; do nothing if all answers have come."""

    def expired(self) -> None:
        """Fail, as the deadline has come."""

    def lost(self, error: RequestError) -> None:
        """Fail the request, whose slots belong to it no longer."""

    def resolve(self) -> None:
        """Pass the answer on, by any thread, without the lock; do nothing the second time."""


class ClosingWaiter(Waiter):
    """Waiter that is resolved after all others.

    Args:
        close: called then.
    """

    __slots__ = ("_close",)

    def __init__(self, close: Callable[[], None]) -> None:
        Waiter.__init__(self, 0)
        self._close = close

    def resolve(self) -> None:
        """As in `Waiter`."""
        self._close()


def again(error: RequestError) -> RequestError:
    """Return an equal error: one that was raised belongs to the thread that it was raised in."""
    return type(error)(*error.args)
