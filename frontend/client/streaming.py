"""A request of a client whose answer comes in parts, as the model makes them."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextvars import Context
from itertools import compress
from typing import Any, Final, cast

from ringbatch.frontend.client.arrays import Array, ArrayForm
from ringbatch.frontend.client.calls import ClientModel, ClientRequest
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.errors import ClientClosed
from ringbatch.frontend.client.loop_waker import LoopWaker, Notified
from ringbatch.frontend.client.waiter import Together, Waiter
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
from ringbatch.shm.lane import Lane
from ringbatch.shm.many_parts import FEW, ManyPartsReader, with_parts
from ringbatch.shm.parts import CorruptPartsError, bytes_for, bytes_for_several, move_deadline
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import PartTimes

_GROUPS_KEPT: Final = 64


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
        self._arrived: deque[bytearray | Array] = deque()
        """Parts as they stood in the slot, or as arrays for the program."""
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
                self._arrive(part)
                if self._resumption is not None:
                    self._resumption.keep(part)
                found = slots.parts.next(slot) if others else None
        except CorruptPartsError:
            self.fail(InternalError())
        # Behind the part, so that a thread that clears it and then looks finds either.
        self.ready = True
        self._wake()

    def _arrive(self, part: bytearray) -> None:
        self._arrived.append(part)

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

    def take(self) -> Any:
        """Return the next part; None if none has come that the program does not have."""
        if not self._arrived:
            return None
        part = self._arrived.popleft()
        if not isinstance(part, bytearray):
            return part
        return self._model.codec.render([(self._rows, part)])

    def each(self) -> Iterator[Any]:
        """Yield each part of the answer, and wait for it; for one thread.

        Raises:
            RequestError: why no more parts come.
        """
        while not self.ended():
            part = self.take()
            if part is not None:
                yield part
            else:
                self._channel.wait(self)

    def leave(self) -> None:
        """Give up what has not come; do nothing if nothing more comes."""
        if not self._over:
            self._channel.forsake(self)


class News:
    """Awaitable of a coroutine that waits for parts: to asyncio's tasks a future without a result.

    A future of asyncio has its loop make a further call for each task. A `LoopWaker` runs in a call
    of the loop already, and goes on with all its coroutines in that one.

    Args:
        loop: of the coroutine.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_go_on", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # By this name tasks know futures of any kind.
        self._asyncio_future_blocking = False
        self._loop = loop
        self._go_on: Callable[[News], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator["News", None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """As of a future."""
        return self._loop

    def add_done_callback(
        self, go_on: "Callable[[News], object]", *, context: Context | None = None
    ) -> None:
        """As of a future, which one task awaits."""
        self._go_on, self._context = go_on, context

    def result(self) -> None:
        """As of a future; the parts are in the request."""

    def cancel(self, msg: object = None) -> bool:
        """Go on soon; return False, so that the task raises the cancellation itself."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            self._loop.call_soon(go_on, self, context=self._context)
        return False

    def come(self) -> None:
        """Go on with the coroutine at once, if it waits; called by the loop, outside of tasks."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            assert self._context is not None, "a task gives its own"
            self._context.run(go_on, self)


class LoopRequestInParts(RequestInParts):
    """A request whose parts a coroutine takes, on the loop of a waker.

    Attributes:
        news: to await, if no part is there.

    Args:
        waker: of the loop that runs in this thread.
        channel, model, parts, timeout_ns, account, asked: as for `RequestInParts`.
    """

    __slots__ = ("_group", "_is_plain", "_waker", "news")

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
        self.news = News(waker.loop)
        self._group: FormGroup | None = None
        self._is_plain = not self._limits.gap_ns and self._resumption is None
        """True if nothing is to be done for a further part but to hand it out and to count it."""

    def _arrive(self, part: bytearray) -> None:
        """Take a part, and be among those whose parts are like it."""
        super()._arrive(part)
        group = self._group
        if self._is_plain and (group is None or not group.form.fits(part)):
            self._leave_group()
            arrays = self._model.arrays
            form = None if arrays is None else arrays.form(self._rows, part)
            if form is not None and self._times is not None:
                self._group = _group_of(self._channel.slots.groups, form, self._times)
                self.together = self._group

    def _leave_group(self) -> None:
        group = self._group
        if group is not None:
            self._group = self.together = None
            group.forget()

    def _send(self, index: int, room: int) -> bool:
        """Send the request, also once more, when its slot may be another."""
        self._leave_group()
        return super()._send(index, room)

    def _finish(self) -> None:
        self._leave_group()
        super()._finish()

    def _wake(self) -> None:
        self._waker.add(self)

    def resolve(self) -> None:
        """As in `Waiter`."""
        self._waker.add(self)

    def notify(self) -> None:
        """As in `Notified`."""
        self.news.come()


class FormGroup:
    """Requests of coroutines whose latest parts have one form, see `Together`.

    A step of a model makes a part for each of its rows. So a few array operations read the parts of
    all requests, and what remains for each is to queue its array.

    Args:
        form: of the parts.
        times: counts of the times of the parts.

    Attributes:
        form, times: as above.
    """

    __slots__ = ("_reader", "_requests", "form", "times")

    def __init__(self, form: ArrayForm, times: PartTimes) -> None:
        self.form, self.times = form, times
        self._requests: list[LoopRequestInParts] = []
        """Requests that the reader is set up for."""
        self._reader: ManyPartsReader | None = None

    def forget(self) -> None:
        """Keep neither requests nor views of memory: one of the requests leaves the group."""
        self._requests, self._reader = [], None

    def hand_out(self, waiters: Mapping[int, Waiter], lane: Lane, now_ns: int) -> list[int]:
        """As in `Together`."""
        slots, requests = [*waiters], cast(list[LoopRequestInParts], [*waiters.values()])
        if len(slots) < FEW:
            return slots
        reader = self._reader
        if reader is None or requests != self._requests:
            reader = ManyPartsReader(lane, slots, self.form.size, self.form.prefix)
            self._reader, self._requests = reader, requests
        chosen, parts = reader.read()
        left: list[int] = []
        if len(parts) < len(slots):
            slots, requests, left = with_parts(slots, requests, chosen)
            if not slots:
                return left
        arrays = self.form.arrays(parts)
        others = reader.take(chosen)
        if others.any():
            left += compress(slots, others.tolist())
        self._queue(requests, arrays, now_ns)
        return left

    def _queue(
        self, requests: "list[LoopRequestInParts]", arrays: list[Array], now_ns: int
    ) -> None:
        """Queue a part of each request, and count its time, mostly the same for all."""
        last_ns, alike = requests[0]._last_ns, 0
        latest: LoopWaker | None = None
        woken: dict[LoopWaker, list[Notified]] = {}
        own: list[Notified] = []
        for request, array in zip(requests, arrays, strict=True):
            if request._last_ns == last_ns:
                alike += 1
            else:
                self.times.gaps.add(now_ns - request._last_ns)
            request._last_ns = now_ns
            request._arrived.append(array)
            waker = request._waker
            if waker is not latest:
                latest, own = waker, woken.setdefault(waker, [])
            own.append(request)
        self.times.gaps.add(now_ns - last_ns, alike)
        for waker, own in woken.items():
            waker.add_all(own)


def _group_of(groups: dict[Hashable, Together], form: ArrayForm, times: PartTimes) -> FormGroup:
    """Return the group of a form and of counts; add it to the groups if there is none."""
    key = times, form
    group = groups.get(key)
    if group is None:
        if len(groups) >= _GROUPS_KEPT:
            groups.clear()
        group = groups[key] = FormGroup(form, times)
    return cast(FormGroup, group)
