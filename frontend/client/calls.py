"""Request of a client: from arrays, through slots, to arrays.

A request of more rows than one batch may hold is sent in parts. As many parts are under way as
leave half of the model's slots to others, so a request may have any number of instances. The first
part that fails fails the request.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ringbatch.frontend.client.arrays import ArrayCodec
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.errors import Interrupted, counted_as
from ringbatch.frontend.client.waiter import Waiter
from ringbatch.frontend.codec.limit_messages import (
    answer_too_large,
    no_answer,
    no_room_ever,
)
from ringbatch.frontend.codec.outcome import ERRORS, RULES, error_of
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.refusal import no_room_in
from ringbatch.frontend.codec.result_sizes import ResultSizes, again
from ringbatch.frontend.codec.resumption import ResumptionPlan
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Status

_WINDOW_SHARE: Final = 2
"""A request has at most one of its model's slots in this many at a time."""


class ClientCodec(Protocol):
    """Codec between a program's values and the bytes in slots."""

    def parse(self, inputs: Any) -> tuple[Part, ...]:
        """Return the parts for slots, in order; raises `InvalidRequest`."""

    def render(self, results: Sequence[tuple[int, bytearray]]) -> Any:
        """Return the answer from the rows and the result of each part; raises `ModelFailed`."""

    def result_bytes(self, rows: int) -> int | None:
        """Return the memory for an answer of so many rows; None if the model decides that."""


@dataclass(frozen=True, slots=True)
class ClientModel:
    """Model as a client knows it.

    Attributes:
        spec: its entry.
        codec: converts between the program's arrays and slots.
        result_sizes: how much memory its answers take.
        takes_word: the word of the segment that says whether requests to it are taken.
        resumption: how its answers are resumed that were cut off; None if they are not.
        arrays: codec of its outputs; None for JSON values.
    """

    spec: ModelSpec
    codec: ClientCodec
    result_sizes: ResultSizes
    takes_word: int
    resumption: ResumptionPlan | None = None
    arrays: ArrayCodec | None = None


class ClientRequest(Waiter):
    """A request whose thread waits for it.

    Args:
        channel: through which it goes.
        model: for which it is.
        parts: its parts; without any, it is answered as soon as it would be sent.
        timeout_ns: from now to its deadline.
        account: its account word, of which the class counts.
    """

    __slots__ = (
        "_accepted_ns",
        "_again",
        "_channel",
        "_counted",
        "_error",
        "_left",
        "_model",
        "_next",
        "_over",
        "_parts",
        "_results",
        "_rows",
        "_slots",
    )

    def __init__(
        self,
        channel: Channel,
        model: ClientModel,
        parts: tuple[Part, ...],
        timeout_ns: int,
        account: int = NOBODY,
    ) -> None:
        now_ns = channel.clock()
        Waiter.__init__(self, now_ns + timeout_ns, account)
        self._accepted_ns = now_ns
        self._channel = channel
        self._model = model
        self._parts = parts
        self._rows = sum(rows for rows, _, _ in parts)
        self._left = count = len(parts)
        self._results: list[tuple[int, bytearray] | None] = [None] * count
        self._next = 0
        self._over = False
        self._counted = False
        self._again: list[tuple[int, int]] = []
        """Parts to be sent once more, and the room for their answers."""
        self._slots: dict[int, tuple[int, int]] = {}
        """Part in each slot, and the room for its answer, by slot."""
        self._error: RequestError | None = None

    def advance(self) -> None:
        """As in `Waiter`."""
        window = max(self._channel.slots.lane.most_of_one // _WINDOW_SHARE, 1)
        while len(self._slots) < window:
            if self._again:
                if not self._send(*self._again[-1]):
                    break
                self._again.pop()
            elif self._next < len(self._parts):
                if not self._send_first(self._next):
                    break
                self._next += 1
            else:
                break
        if not self._left:
            self._finish()
        elif not self._slots and not self._over:
            self._fail_for_room()

    def _send_first(self, index: int) -> bool:
        rows, payload, _ = self._parts[index]
        sizes, size = self._model.result_sizes, len(payload)
        if self._send(index, sizes.result_bytes(rows, size)):
            return True
        usual = sizes.usual_bytes(rows, size)
        if not self._channel.slots.fits(size, usual):
            usual = sizes.least_bytes(rows, size)
        return self._send(index, usual)

    def _send(self, index: int, room: int) -> bool:
        """Send a part, with that much room for its answer; return whether it was sent."""
        rows, payload, key_bytes = self._parts[index]
        model = self._model.spec.reference
        slot = self._channel.slots.send(self, model, rows, payload, key_bytes, room)
        if slot is None:
            return False
        if self._counted:
            self._channel.slots.lane.count_no_more(slot)
        self._counted = True
        self._slots[slot] = index, room
        return True

    def _fail_for_room(self) -> None:
        """Fail for lack of room for the next part, as no part of this request will free any."""
        slots = self._channel.slots
        if not self._again:
            rows, payload, _ = self._parts[self._next]
            size, least = len(payload), self._model.result_sizes.least_bytes(rows, len(payload))
            if not slots.fits(size, least):
                self.fail(no_room_ever(size, least, slots.lane.lane_bytes))
                return
        self.fail(no_room_in(slots.lane))

    def answered(self, slot: int) -> None:
        """As in `Waiter`."""
        channel = self._channel
        lane = channel.slots.lane
        memory = lane.memory
        sent = self._slots.pop(slot, None)
        if sent is None:
            lane.release(slot)
            return
        index, room = sent
        status, size, _ = lane.outcome(slot)
        before = lane.answer_start(slot) if self._model.result_sizes.chained else 0
        start = lane.result_offset[slot] + before
        if status is Status.OK:
            self._results[index] = self._parts[index].rows, bytearray(memory[start : start + size])
            finished_ns: int = lane.words[lane.finished_words[slot]]
            lane.release(slot)
            if not self._model.result_sizes.sized:
                self._model.result_sizes.learn(len(self._parts[index].payload), size + before)
            self._left -= 1
            if not self._left:
                channel.took(finished_ns - self._accepted_ns)
                self._finish()
            elif self._again or self._next < len(self._parts):
                self.advance()
            return
        too_large = status is Status.RESULT_TOO_LARGE
        text = "" if too_large else bytes(memory[start : start + size]).decode(errors="replace")
        lane.release(slot)
        if too_large and size > room:
            self._send_again(index, size)
        else:
            self.fail(error_of(status, text or RULES[ERRORS[status]].text))

    def _send_again(self, index: int, result_bytes: int) -> None:
        size = len(self._parts[index].payload)
        for room in (again(result_bytes), result_bytes):
            if self._channel.slots.fits(size, room):
                self._again.append((index, room))
                self.advance()
                return
        self.fail(answer_too_large(result_bytes, self._channel.slots.lane.lane_bytes))

    def fail(self, error: RequestError) -> None:
        """As in `Waiter`."""
        if not self._over:
            self._channel.slots.cancel(self._slots)
            self._slots.clear()
            self._error = error
            self._finish()

    def expired(self) -> None:
        """As in `Waiter`."""
        waited_ns = self.deadline_ns - self._accepted_ns
        self.fail(no_answer(waited_ns, self._model.spec.timeout_ns))

    def lost(self, error: RequestError) -> None:
        """As in `Waiter`."""
        self._slots.clear()
        self.fail(error)

    def _finish(self) -> None:
        self._over = self.ready = True
        channel, error = self._channel, self._error
        tally = channel.slots.tally(self._model.spec)
        took_ns = channel.clock() - self._accepted_ns
        if error is None:
            tally.answered(took_ns, self._rows)
        elif not channel.closed:
            tally.ended(counted_as(error), took_ns, 1, self.account)
        channel.over(self)

    def result(self) -> Any:
        """Return the answer, once ready.

        Raises:
            RequestError: why there is none.
        """
        if self._error is not None:
            raise self._error
        return self._model.codec.render([result for result in self._results if result is not None])


class AsyncRequest(ClientRequest):
    """A request whose answer goes into a future.

    Attributes:
        future: for the program.
    """

    __slots__ = ("future",)
    deferred = True

    def __init__(
        self,
        channel: Channel,
        model: ClientModel,
        parts: tuple[Part, ...],
        timeout_ns: int,
        account: int = NOBODY,
    ) -> None:
        super().__init__(channel, model, parts, timeout_ns, account)
        self.future = AnswerFuture(self)

    def abandon(self) -> None:
        """Abandon the request: the program wants no answer any more."""
        self._channel.abandon(self)

    def resolve(self) -> None:
        """As in `Waiter`."""
        future = self.future
        try:
            if not future.let_go() or not future.set_running_or_notify_cancel():
                return
            try:
                result = self.result()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        except BaseException:
            if not future.done():
                future.set_exception(Interrupted("the thread that read the answer was interrupted"))
            raise


class AnswerFuture(Future[Any]):
    """The answer to come. Cancelled, the request is abandoned, and run no more if it can be."""

    def __init__(self, call: AsyncRequest) -> None:
        super().__init__()
        self._call: AsyncRequest | None = call

    def cancel(self) -> bool:
        """Abandon the request; False where its answer has come already."""
        if not super().cancel():
            return False
        if (call := self._call) is not None:
            call.abandon()
        return True

    def let_go(self) -> bool:
        """Keep the request, and with it the program's arrays, no longer; whether it was kept."""
        call, self._call = self._call, None
        return call is not None


class UnsentRequest(Waiter):
    """A request that is not sent; to advance is to count it.

    Args:
        channel: through which it would have gone.
        spec: of its model; None where there is no such.
        error: why it is not sent.
    """

    __slots__ = ("_channel", "_code", "_spec")

    def __init__(self, channel: Channel, spec: ModelSpec | None, error: RequestError) -> None:
        Waiter.__init__(self, 0)
        self._channel = channel
        self._spec = spec
        self._code = counted_as(error)

    def advance(self) -> None:
        """As in `Waiter`."""
        self._channel.slots.tally(self._spec).ended(self._code, 0)


class Divider(Waiter):
    """Divides the lane among the models of a table that was read again; to advance is to do so.

    Args:
        channel: to the lane.
    """

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        Waiter.__init__(self, 0)
        self._channel = channel

    def advance(self) -> None:
        """As in `Waiter`."""
        self._channel.slots.divide()
