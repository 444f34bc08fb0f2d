"""A request of a client whose answer comes in parts, as the model makes them."""

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from typing import Any

from ringbatch.frontend.client.calls import ClientModel, ClientRequest
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.errors import ClientClosed
from ringbatch.frontend.client.loop_waker import LoopWaker
from ringbatch.frontend.codec.limit_messages import expect_one_batch
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.part_limits import (
    PartLimits,
    first_deadline_ns,
    limits_of,
    no_part,
)
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.resumption import NothingLeft, Resumption
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.parts import CorruptPartsError, bytes_for, bytes_for_several, move_deadline
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import PartTimes


class RequestInParts(ClientRequest):
    """A request whose thread takes each part of its answer.

    The client's own thread takes parts out of the slot while the program works on an earlier one: a
    worker fails a request whose parts stay there. They wait in the program's memory, as the whole
    answer would.

    Args:
        channel, model, timeout_ns, account: as for `ClientRequest`.
        parts: of the request, of which there is one.
        asked: the limits that it asks for.

    Raises:
        InvalidRequest: the request does not fit into one batch.
    """

    __slots__ = ("_arrived", "_last_ns", "_limits", "_resumption", "_times", "_until_ns")
    deferred = True
    in_parts = True

    def __init__(
        self,
        channel: Channel,
        model: ClientModel,
        parts: tuple[Part, ...],
        timeout_ns: int,
        account: int,
        asked: PartLimits,
    ) -> None:
        expect_one_batch([rows for rows, _, _ in parts], model.spec.max_batch_size)
        super().__init__(channel, model, parts, timeout_ns, account)
        self._arrived: deque[bytearray] = deque()
        self._last_ns = 0
        """Arrival of the latest part in nanoseconds; 0 before the first."""
        self._until_ns = self.deadline_ns
        self._times: PartTimes | None = None
        """Counts of the times of its parts; None before the first."""
        self._limits = limits_of(model.spec, asked)
        self.deadline_ns = first_deadline_ns(self._limits, self._accepted_ns, self._until_ns)
        plan = model.resumption
        self._resumption = None if plan is None else Resumption(plan)

    @property
    def until_ns(self) -> int:
        """As in `Waiter`."""
        return self._until_ns

    def _send_first(self, index: int) -> bool:
        rows, payload, _ = self._parts[index]
        usual = self._model.result_sizes.result_bytes(rows, len(payload))
        return self._send(index, bytes_for_several(usual)) or self._send(index, bytes_for(usual))

    def has_parts(self, slot: int) -> None:
        """As in `Waiter`."""
        slots = self._channel.slots
        if self._times is None:
            self._times = slots.tally(self._model.spec).parts
        memory, times = slots.lane.memory, self._times
        # One look at the clock for all that have come together.
        now_ns, gap_ns = self._channel.clock(), self._limits.gap_ns
        deadline_ns = min(now_ns + gap_ns, self._until_ns) if gap_ns else self._until_ns
        try:
            found = slots.parts.next(slot)
            while found is not None and slot in self._slots:
                start, size = found
                part = bytearray(memory[start : start + size])
                others = slots.parts.take(slot, size)
                self.deadline_ns = deadline_ns
                if gap_ns and not self._last_ns:
                    self._channel.expect(deadline_ns)
                self._last_ns = times.count(now_ns, self._last_ns, self._accepted_ns)
                self._arrived.append(part)
                if self._resumption is not None:
                    self._resumption.keep(part)
                found = slots.parts.next(slot) if others else None
        except CorruptPartsError:
            self.fail(InternalError())
        # Behind the part, so that a thread that clears it and then looks finds either.
        self.ready = True
        self._wake()

    def _wake(self) -> None:
        """Wake who waits for a part."""
        self._channel.wake(self)

    def answered(self, slot: int) -> None:
        """As in `Waiter`."""
        self.has_parts(slot)
        lane = self._channel.slots.lane
        status, _, _ = lane.outcome(slot)
        if slot not in self._slots or status is not Status.OK:
            if status is not Status.CUT_OFF or not self._resumes(slot):
                super().answered(slot)
            return
        self._end(slot)

    def expired(self) -> None:
        """As in `Waiter`, also where the next part alone is late."""
        if self.deadline_ns == self._until_ns:
            super().expired()
            return
        for slot in self._slots:
            move_deadline(self._channel.slots.lane, slot, self.deadline_ns)
        self.fail(no_part(self._limits, self._model.spec, begun=bool(self._last_ns)))

    def _end(self, slot: int) -> None:
        """End the request behind the parts that have come."""
        del self._slots[slot]
        self._channel.slots.lane.release(slot)
        self._left = 0
        self._finish()

    def _resumes(self, slot: int) -> bool:
        """Send a request that was cut off again, if more is to come; return whether it goes on."""
        if slot not in self._slots or self._resumption is None:
            return False
        try:
            part = self._resumption.resumed(self._parts[0])
        except NothingLeft:
            self._end(slot)
            return True
        if part is None:
            return False
        del self._slots[slot]
        lane = self._channel.slots.lane
        lane.release(slot)
        lane.counters.add(LaneCounter.RESUMED)
        self._parts, self._next = (part,), 0
        self.advance()
        return True

    def ended(self) -> bool:
        """Return whether the program has all parts, and no more come.

        Raises:
            RequestError: why no more parts come.
        """
        # Before the look at arrived parts: a part that comes later sets it again.
        self.ready = False
        over = self._over
        if self._arrived:
            return False
        if over:
            if self._error is not None:
                raise self._error
            return True
        if self._channel.closed:
            parent = os.getppid()
            raise ClientClosed(f"this client belongs to process {parent}, which has the parts")
        return False

    @property
    def has_part(self) -> bool:
        """True if a part has come that the program does not have."""
        return bool(self._arrived)

    def take(self) -> Any:
        """Return the next part, which has come."""
        return self._model.codec.render([(self._rows, self._arrived.popleft())])

    def each(self) -> Iterator[Any]:
        """Yield each part of the answer, and wait for it; for one thread.

        Raises:
            RequestError: why no more parts come.
        """
        while not self.ended():
            if self._arrived:
                yield self.take()
            else:
                self._channel.wait(self)

    def leave(self) -> None:
        """Give up what has not come; do nothing if nothing more comes."""
        if not self._over:
            self._channel.forsake(self)


class LoopRequestInParts(RequestInParts):
    """A request whose parts a coroutine takes, on the loop of a waker.

    Args:
        waker: of the loop that runs in this thread.
        channel, model, parts, timeout_ns, account, asked: as for `RequestInParts`.
    """

    __slots__ = ("_news", "_waker")

    def __init__(
        self,
        waker: LoopWaker,
        channel: Channel,
        model: ClientModel,
        parts: tuple[Part, ...],
        timeout_ns: int,
        account: int,
        asked: PartLimits,
    ) -> None:
        super().__init__(channel, model, parts, timeout_ns, account, asked)
        self._waker = waker
        self._news: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        self._waker.add(self)

    def resolve(self) -> None:
        """As in `Waiter`."""
        self._waker.add(self)

    def notify(self) -> None:
        """As in `Notified`."""
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def news(self) -> "asyncio.Future[None]":
        """Return a future that is done once there may be a part, or the end."""
        news = self._news = self._waker.loop.create_future()
        return news
