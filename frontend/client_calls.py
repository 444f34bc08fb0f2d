"""One request of a client, from arrays to arrays.

What exceeds a batch is sent in parts, as many at a time as leave half of the lane to others; so a
request may have any number of instances. The first part that fails fails the request.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ringbatch.frontend.client_channel import Channel
from ringbatch.frontend.client_waiter import Waiter, expired_error, overloaded_error
from ringbatch.frontend.outcome import ERRORS, RULES, error_of
from ringbatch.frontend.rooms import Rooms, again
from ringbatch.frontend.v1_request import Part
from ringbatch.shm.errors import ModelFailed, RequestError, RequestTooLarge
from ringbatch.shm.manifest import ModelSpec
from ringbatch.shm.slot import Status

_WINDOW_SHARE: Final = 2
"""A request has at most one slot in this many at a time."""


class Codec(Protocol):
    """Between what a program gives and gets, and slots."""

    def parse(self, inputs: Any) -> tuple[Part, ...]:
        """What goes into slots, in order; raises `InvalidRequest`."""

    def render(self, results: Sequence[tuple[int, bytearray]]) -> Any:
        """The answer, from the rows and the result of each part; raises `ModelFailed`."""

    def result_bytes(self, rows: int) -> int | None:
        """The memory that an answer of so many rows takes; None where the model decides that."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model, as a client knows it.

    Attributes:
        spec: what the manifest says.
        codec: between the program and slots.
        rooms: for its answers.
        served_word: where it stands whether it was ever ready.
    """

    spec: ModelSpec
    codec: Codec
    rooms: Rooms
    served_word: int


class Call(Waiter):
    """A request whose thread waits for it.

    Args:
        channel: through which it goes.
        model: for which it is.
        parts: of it, at least one.
        timeout_ns: from now to its deadline.
    """

    __slots__ = (
        "_accepted_ns",
        "_channel",
        "_error",
        "_left",
        "_model",
        "_next",
        "_parts",
        "_results",
        "_slots",
    )

    def __init__(
        self, channel: Channel, model: Model, parts: tuple[Part, ...], timeout_ns: int
    ) -> None:
        now_ns = channel.clock()
        Waiter.__init__(self, now_ns + timeout_ns)
        self._accepted_ns = now_ns
        self._channel = channel
        self._model = model
        self._parts = parts
        self._left = count = len(parts)
        self._results: list[tuple[int, bytearray] | None] = [None] * count
        self._next = 0
        self._slots: dict[int, tuple[int, int]] = {}
        """By slot, the part in it and the room for its answer."""
        self._error: RequestError | None = None

    def advance(self) -> None:
        """As in `Waiter`."""
        parts, rooms = self._parts, self._model.rooms
        window = max(self._channel.slots.lane.capacity // _WINDOW_SHARE, 1)
        for index in range(self._next, min(self._next + window - len(self._slots), len(parts))):
            rows, payload, _ = parts[index]
            if not self._send(index, rooms.result_bytes(rows, len(payload))):
                return
            self._next = index + 1

    def _send(self, index: int, room: int) -> bool:
        """Whether the part was sent; where it was not, and nothing is in flight, the request has
        failed."""
        slots, model = self._channel.slots, self._model.spec.reference
        rows, payload, key_bytes = self._parts[index]
        slot = slots.send(self, model, rows, payload, key_bytes, room)
        if slot is not None:
            self._slots[slot] = index, room
            return True
        if not slots.fits(len(payload), room):
            limit = slots.segment.layout.lane_bytes
            self.fail(
                RequestTooLarge(
                    f"a request of {len(payload)} bytes and its answer of {room} exceed the "
                    f"{limit} bytes there are for requests"
                )
            )
        elif not self._slots:
            self.fail(overloaded_error())
        return False

    def answered(self, slot: int) -> None:
        """As in `Waiter`."""
        channel = self._channel
        lane = channel.slots.lane
        memory = lane.memory
        index, room = self._slots.pop(slot)
        status, size, _, _, _, _, finished_ns = lane.answer(slot)
        start = lane.result_offset[slot]
        if status is Status.OK:
            self._results[index] = self._parts[index].rows, bytearray(memory[start : start + size])
            lane.release(slot)
            if not self._model.rooms.sized:
                self._model.rooms.learn(size)
            self._left -= 1
            if not self._left:
                channel.took(finished_ns - self._accepted_ns)
                self._finish()
            elif self._next < len(self._parts):
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
        room = again(result_bytes)
        if not self._channel.slots.fits(len(self._parts[index].payload), room):
            self.fail(
                ModelFailed(
                    f"the model's answer takes {result_bytes} bytes, more than there is room for"
                )
            )
        elif not self._send(index, room) and not self.ready:
            self.fail(overloaded_error())

    def fail(self, error: RequestError) -> None:
        """As in `Waiter`."""
        if not self.ready:
            self._channel.slots.cancel(self._slots)
            self._slots.clear()
            self._error = error
            self._finish()

    def expired(self) -> None:
        """As in `Waiter`."""
        self.fail(expired_error(self._accepted_ns, self.deadline_ns))

    def lost(self, error: RequestError) -> None:
        """As in `Waiter`."""
        self._slots.clear()
        self.fail(error)

    def _finish(self) -> None:
        self.ready = True
        self._channel.over(self)

    def result(self) -> Any:
        """The answer, once ready.

        Raises:
            RequestError: why there is none.
        """
        if self._error is not None:
            raise self._error
        return self._model.codec.render([result for result in self._results if result is not None])


class DeferredCall(Call):
    """A request whose answer goes into a future.

    Attributes:
        future: for the program.
    """

    __slots__ = ("future",)
    deferred = True

    def __init__(
        self, channel: Channel, model: Model, parts: tuple[Part, ...], timeout_ns: int
    ) -> None:
        super().__init__(channel, model, parts, timeout_ns)
        self.future = AnswerFuture(self)

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
        self._channel.abandon(self)

    def resolve(self) -> None:
        """As in `Waiter`."""
        future = self.future
        future.let_go()
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = self.result()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class AnswerFuture(Future[Any]):
    """The answer to come. Cancelled, the request is abandoned, and run no more if it can be."""

    def __init__(self, call: DeferredCall) -> None:
        super().__init__()
        self._call: DeferredCall | None = call

    def cancel(self) -> bool:
        """Abandon the request; False where its answer has come already."""
        if not super().cancel():
            return False
        if (call := self._call) is not None:
            call.abandon()
        return True

    def let_go(self) -> None:
        """Keep the request, and with it the program's arrays, no longer."""
        self._call = None
