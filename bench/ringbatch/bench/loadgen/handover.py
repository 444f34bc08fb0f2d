"""The way from LoadGen's thread, which issues queries, to the one that sends them."""

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple


class Issued(NamedTuple):
    """One call of LoadGen's.

    Attributes:
        at_ns: when, on the monotonic clock.
        ids: by which LoadGen knows the queries.
        samples: of the library, one for each.
    """

    at_ns: int
    ids: Sequence[int]
    samples: Sequence[int]


class Handover:
    """Queries that were issued and not yet taken.

    LoadGen's thread appends, and makes a system call only where the other one sleeps: that one
    says that it does before it looks for the last time, so that no query is overlooked.

    Args:
        rest_s: that LoadGen's thread sleeps after each call. What is due meanwhile comes in one
            call afterwards, which takes the two threads less time than one for each.

    Attributes:
        fd: can be read where there may be something new.
        flushed_ns: when LoadGen said that no more will come; None before.
        over: whether LoadGen has ended the run.
    """

    def __init__(self, rest_s: float = 0.0) -> None:
        self._rest_s = rest_s
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.flushed_ns: int | None = None
        self.over = False
        self._issued: deque[Issued] = deque()
        self._asleep = False

    def issue(self, ids: Sequence[int], samples: Sequence[int]) -> None:
        """In LoadGen's thread: queries that are due."""
        self._issued.append(Issued(time.monotonic_ns(), ids, samples))
        if self._asleep:
            self._asleep = False
            self.wake()
        if self._rest_s:
            time.sleep(self._rest_s)

    def flush(self) -> None:
        """In LoadGen's thread: no more will come."""
        self.flushed_ns = time.monotonic_ns()
        self.wake()

    def end(self) -> None:
        """In LoadGen's thread: the run is over."""
        self.over = True
        self.wake()

    def wake(self) -> None:
        """Make `fd` readable."""
        os.eventfd_write(self.fd, 1)

    def take(self) -> list[Issued]:
        """Return the queries issued since the last call."""
        found = []
        while self._issued:
            found.append(self._issued.popleft())
        return found

    def may_sleep(self) -> bool:
        """Return whether no query is left to take; the next one then makes `fd` readable."""
        self._asleep = True
        if self._issued:
            self._asleep = False
            return False
        return True

    def awake(self) -> None:
        """Take back what `may_sleep` has promised."""
        self._asleep = False

    def drain(self) -> None:
        """Make `fd` unreadable."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Close `fd`."""
        os.close(self.fd)
