"""Delivery of items to another program by a thread of its own, so that nobody else waits.

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
    """See the module.

    Attributes:
        delivered: items that were taken.
        full: that were dropped because too many waited.
        failed: that were dropped because they could not be delivered, or were refused.

    Args:
        items: what they are called, in the plural.
        place: the setting that names the receiver, and the receiver.
        deliver: delivers some; returns a remark, mostly empty. Raises `NotTakenError`, or OSError
            if they may be delivered again.
        most_at_once: items in one call of that.
        most_waiting: the sum of the weights of items that may wait.
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
        self._waiting: deque[tuple[T, int]] = deque()
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

    def put(self, item: T, weight: int = 1) -> None:
        """Have an item delivered."""
        if self._came - self._left + weight > self._most_waiting:
            self.full += 1
            return
        self._came += weight
        self._waiting.append((item, weight))
        if len(self._waiting) >= self._most_at_once:
            self._news.set()

    def close(self) -> None:
        """Deliver what waits, as far as it is taken within a second."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._waiting:
            self._logger.warning("%s: %d are not sent at the end", self._items, len(self._waiting))

    def _turn(self) -> bool:
        self._news.wait(_EVERY_S)
        self._news.clear()
        self.deliver_waiting()
        return not self._closing.is_set() or bool(self._waiting)

    def deliver_waiting(self) -> None:
        """Deliver what waits; by the thread."""
        while self._waiting:
            some = min(len(self._waiting), self._most_at_once)
            taken = [self._waiting.popleft() for _ in range(some)]
            self._left += sum(weight for _, weight in taken)
            try:
                objection = self._objection([item for item, _ in taken])
            except BaseException:
                self.failed += some
                raise
            if objection is None:
                self.delivered += some
            else:
                self.failed += some
                self._complain(objection)

    def _objection(self, items: Sequence[T]) -> str | None:
        """Deliver some, again if need be; return why they were dropped, None if they were taken."""
        for pause_s in (*AGAIN_AFTER_S, None):
            try:
                remark = self._deliver(items)
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
