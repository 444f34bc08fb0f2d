"""Delivery of items to another program by a thread of its own, so that no other thread waits.

Items that the receiver does not take as quickly as they come gather up to a bound. What comes
beyond is dropped and counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ringbatch.shm.host.background import repeating_thread

AGAIN_AFTER_S: Final = (0.0, 0.5, 1.0)
"""Delays before a failed delivery is tried again; a kept connection may be stale."""
COMPLAIN_EVERY_S: Final = 60
CLOSE_S: Final = 1.0
"""Seconds that the end of the process waits for the last items."""
_EVERY_S: Final = 1.0
"""Unless there is a whole parcel before: each wakes a thread and a receiver."""

T = TypeVar("T")


class NotTakenError(Exception):
    """Refusal of a delivery that would be refused again."""


class Delivering(Generic[T]):
    """Delivery thread with a bounded queue. A subclass may have its thread fetch items too.

    Attributes:
        delivered: items that were taken.
        full: that were dropped because too many waited.
        failed: that were dropped because they could not be delivered, or were refused.

    Args:
        items: their name, in the plural.
        place: the setting that names the receiver, and the receiver.
        deliver: delivers some; returns a remark, mostly empty. Raises `NotTakenError`, or OSError
            if they may be delivered again.
        most_at_once: entries in one call of that.
        most_waiting: the sum of the weights of entries that may wait.
        clock: monotonic nanoseconds.
        logger: takes complaints.
    """

    def __init__(
        self,
        items: str,
        place: str,
        deliver: Callable[[Sequence[T]], str],
        most_at_once: int,
        most_waiting: int,
        clock: Callable[[], int],
        logger: logging.Logger,
    ) -> None:
        self.delivered = self.full = self.failed = 0
        self._items = items
        self._place = place
        self._deliver = deliver
        self._most_at_once = most_at_once
        self._most_waiting = most_waiting
        self._clock = clock
        self._logger = logger
        self._waiting: deque[tuple[T, int, int]] = deque()
        # Each is counted by one thread: what came, and what has left.
        self._came = self._left = 0
        self._news = threading.Event()
        self._closing = threading.Event()
        self._complained_ns: int | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        name = f"the delivery of {self._items}"
        self._thread = repeating_thread(name, self._turn, self._closing.wait)

    def put(self, entry: T, weight: int = 1, count: int = 1) -> None:
        """Have an entry delivered, which stands for so many items."""
        # A heavier one has room alone.
        if self._waiting and self._came - self._left + weight > self._most_waiting:
            self.full += count
            return
        self._came += weight
        self._waiting.append((entry, weight, count))
        if len(self._waiting) >= self._most_at_once:
            self._news.set()

    def close(self) -> None:
        """Deliver what waits, as far as it is taken within a second."""
        self._closing.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if left := sum(count for _, _, count in self._waiting.copy()):
            self._logger.warning("%s: %d are not sent at the end", self._items, left)

    def wait(self) -> None:
        """Wait for entries; by the thread."""
        self._news.wait(_EVERY_S)
        self._news.clear()

    def look(self) -> None:
        """Put entries that have come in the meantime; by the thread, after each delivery."""

    def wake(self) -> None:
        """End the thread's wait, at the end."""
        self._news.set()

    def deliver_waiting(self) -> None:
        """Deliver what waits; by the thread."""
        while self._waiting:
            some = min(len(self._waiting), self._most_at_once)
            taken = [self._waiting.popleft() for _ in range(some)]
            self._left += sum(weight for _, weight, _ in taken)
            count = sum(count for _, _, count in taken)
            try:
                objection = self._objection([entry for entry, _, _ in taken])
            except BaseException:
                self.failed += count
                raise
            if objection is None:
                self.delivered += count
            else:
                self.failed += count
                self._complain(objection)
            self.look()

    def _turn(self) -> bool:
        self.wait()
        self.deliver_waiting()
        return not self._closing.is_set() or bool(self._waiting)

    def _objection(self, entries: Sequence[T]) -> str | None:
        """Deliver some, again if need be; return why they were dropped, None if they were taken."""
        for pause_s in (*AGAIN_AFTER_S, None):
            try:
                remark = self._deliver(entries)
            except NotTakenError as error:
                return str(error)
            except OSError as error:
                objection = str(error) or type(error).__name__
                if pause_s is None or self._closing.wait(pause_s):
                    return objection
            else:
                if remark:
                    self._complain(remark)
                return None
        raise AssertionError("the last one returns")

    def _complain(self, objection: str) -> None:
        now_ns, before_ns = self._clock(), self._complained_ns
        if before_ns is not None and now_ns - before_ns < COMPLAIN_EVERY_S * 1e9:
            return
        self._complained_ns = now_ns
        self._logger.warning(
            "%s: not all are taken at %s: %s; %d were sent and %d dropped",
            self._items,
            self._place,
            objection,
            self.delivered,
            self.failed + self.full,
        )
