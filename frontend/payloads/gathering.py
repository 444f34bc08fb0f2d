"""Gathering of exchanges in a serving process, which passes on several at once.

A message for each would wake the control process for each, which takes a core from the processes
that serve.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ringbatch.frontend.payloads.settings import Send
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.lane import Lane

GATHER_S: Final = 0.1
"""Seconds from the first exchange to the message. A process that is killed loses no more."""
MOST_GATHERED_BYTES: Final = 1 << 17
"""Bytes of exchanges after which a message does not wait for that."""

T = TypeVar("T")


class Gathering(Generic[T]):
    """See the module.

    Args:
        packed: makes a message of exchanges.
        pass_on: takes messages.
        lane: of this process; it counts lost exchanges, also those of a process that was killed.
        loop: of this process.
    """

    def __init__(
        self,
        packed: Callable[[Sequence[T]], bytes],
        pass_on: Send,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._packed = packed
        self._pass_on = pass_on
        self._lane = lane
        self._loop = loop
        self._exchanges: list[T] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        # An earlier owner of the lane took these with it.
        lane.counters.add(LaneCounter.PAYLOADS_LOST, lane.gathered_payloads)
        lane.gathered_payloads = 0

    def put(self, exchange: T, size: int) -> None:
        """Have an exchange of so many bytes passed on."""
        self._exchanges.append(exchange)
        self._lane.gathered_payloads = len(self._exchanges)
        self._bytes += size
        if self._bytes >= MOST_GATHERED_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Pass on what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        exchanges, self._exchanges, self._bytes = self._exchanges, [], 0
        if not exchanges:
            return
        taken = False
        try:
            taken = self._pass_on(self._packed(exchanges))
        finally:
            if not taken:
                self._lane.counters.add(LaneCounter.PAYLOADS_LOST, len(exchanges))
            self._lane.gathered_payloads = 0
