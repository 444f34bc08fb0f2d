"""Gathering of exchanges in a serving process, which passes on many at once.

A message for each would wake the control process for each, which takes a core from the processes
that serve. Records are made of a few exchanges at a time, because those of a whole message would
hold up requests.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ringbatch.frontend.payloads.settings import Send
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.lane import Lane

GATHER_S: Final = 1.0
"""Seconds from the first exchange to the message. A process that is killed loses no more."""
MOST_GATHERED_BYTES: Final = 1 << 19
"""Bytes of exchanges after which a message does not wait for that."""
RECORDED_AT_ONCE: Final = 32
"""Exchanges of which records are made together: quicker than now and then for one."""

T = TypeVar("T")


class Gathering(Generic[T]):
    """Gatherer of exchanges, which passes on many at once.

    Args:
        records: makes records of exchanges; a message is one or several, one after another.
        pass_on: takes messages.
        lane: of this process; it counts lost exchanges, also those of a process that was killed.
        loop: of this process.
    """

    def __init__(
        self,
        records: Callable[[Sequence[T]], bytes],
        pass_on: Send,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._records = records
        self._pass_on = pass_on
        self._lane = lane
        self._loop = loop
        self._exchanges: list[T] = []
        self._recorded: list[bytes] = []
        self._gathered = 0
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        # An earlier owner of the lane took these with it.
        lane.counters.add(LaneCounter.PAYLOADS_LOST, lane.gathered_payloads)
        lane.gathered_payloads = 0

    def put(self, exchange: T, size: int) -> None:
        """Have an exchange of so many bytes passed on."""
        self._exchanges.append(exchange)
        self._count(self._gathered + 1)
        self._bytes += size
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self.flush)
        if self._bytes >= MOST_GATHERED_BYTES:
            self.flush()
        elif len(self._exchanges) >= RECORDED_AT_ONCE:
            self._record()

    def flush(self) -> None:
        """Pass on all gathered exchanges."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._record()
        finally:
            self._send()

    def _record(self) -> None:
        """Make records of the latest exchanges; they are lost if that fails."""
        exchanges, self._exchanges = self._exchanges, []
        made = False
        try:
            self._recorded.append(self._records(exchanges))
            made = True
        finally:
            if not made:
                self._lose(len(exchanges))

    def _send(self) -> None:
        message, self._recorded, self._bytes = b"".join(self._recorded), [], 0
        taken = False
        try:
            # The settings may want no event of any of them.
            taken = not message or self._pass_on(message)
        finally:
            if taken:
                self._count(0)
            else:
                self._lose(self._gathered)

    def _lose(self, exchanges: int) -> None:
        self._lane.counters.add(LaneCounter.PAYLOADS_LOST, exchanges)
        self._count(self._gathered - exchanges)

    def _count(self, gathered: int) -> None:
        self._gathered = self._lane.gathered_payloads = gathered
