"""Who waits for answers in a client, and what it fails with."""

import threading
from collections.abc import Callable

from ringbatch.shm.errors import RequestError


class Waiter:
    """Who has requests in the lane. But for `ready`, all of it is touched under the lock alone.

    Attributes:
        ready: whether its thread has nothing to wait for now.
        deadline_ns: when it fails, on the monotonic clock.
        asleep: whether its thread sleeps on `signal`, which a thread that wakes it releases; made
            when it first sleeps so.
        deferred: whether nobody waits for it, so that the channel's own thread must.
    """

    __slots__ = ("__weakref__", "asleep", "deadline_ns", "ready", "signal")
    deferred: bool = False

    def __init__(self, deadline_ns: int) -> None:
        self.ready = False
        self.deadline_ns = deadline_ns
        self.asleep = False
        self.signal: threading.Lock | None = None

    def advance(self) -> None:
        """Send what there is to send."""

    def answered(self, slot: int) -> None:
        """The answer stands in the slot; the waiter reads it and releases the slot, which it does
        also where it has failed over an answer that came together with this one."""

    def fail(self, error: RequestError) -> None:
        """Want no answer any more; does nothing where all have come."""

    def expired(self) -> None:
        """The deadline has come."""

    def lost(self, error: RequestError) -> None:
        """Its slots are no longer its own."""

    def resolve(self) -> None:
        """Tell whoever the answer is for; by any thread, without the lock."""


class Last(Waiter):
    """What is resolved behind everybody else.

    Args:
        close: what is to be done then.
    """

    __slots__ = ("_close",)

    def __init__(self, close: Callable[[], None]) -> None:
        Waiter.__init__(self, 0)
        self._close = close

    def resolve(self) -> None:
        """As in `Waiter`."""
        self._close()


def again(error: RequestError) -> RequestError:
    """An equal error: one that was raised belongs to the thread that it was raised in."""
    return type(error)(*error.args)
