"""A request on its way through the lane, from its slot to its reply.

A request that fits in one batch is a `Task` and nothing else; what it asks of its protocol stands
in its rendering. One that does not is a `ringbatch.frontend.request.split.Split` as well.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ringbatch.frontend.codec.limit_words import answer_too_large, no_answer, no_room_now
from ringbatch.frontend.codec.outcome import InternalError, error_of, status_of
from ringbatch.frontend.codec.payload import LazyBytes, SlotPart
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.codec.result_sizes import again
from ringbatch.frontend.request.endings import NO_SLOT, Endings
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import ModelFailed, RequestError
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import CLIENT_GONE, Tally

log = logging.getLogger("ringbatch.frontend")

A = TypeVar("A")
"""What the answers of a protocol are."""
_OK: Final = Status.OK


@dataclass(slots=True)
class Engine:
    """What every call needs of the process it is in."""

    gateway: Gateway
    lane: Lane
    batch_ids: BatchIds
    lane_bytes: int
    endings: Endings


class SlotRequest(ABC, Generic[A]):
    """One part of a request on its way through a slot; once it is sent, the gateway calls it.

    Attributes:
        model: for which it is.
        reply: called once, unless it is abandoned first.
        accepted_ns: when the request arrived.
        deadline_ns: when its client gives up.
    """

    __slots__ = (
        "_engine",
        "_part",
        "_result_bytes",
        "_slot",
        "accepted_ns",
        "deadline_ns",
        "model",
        "reply",
    )

    _engine: Engine
    _part: SlotPart
    _result_bytes: int
    _slot: int
    model: ServedModel
    reply: Callable[[A], None]
    accepted_ns: int
    deadline_ns: int

    def send(self, engine: Engine, part: SlotPart, result_bytes: int, least: int = 0) -> None:
        """Put a part into a slot with that many bytes for the answer.

        Args:
            engine: of this process.
            part: what goes into the slot.
            result_bytes: what the answer is likely to take.
            least: how many bytes will do where memory is short; by default what most answers take.

        Raises:
            Overloaded: no slot or no memory is left.
            InvalidRequest: the payload is lazy, and cannot be read.
        """
        lane, model = engine.lane, self.model.reference
        rows, payload, key_bytes = part
        accepted_ns, deadline_ns = self.accepted_ns, self.deadline_ns
        if isinstance(payload, LazyBytes):
            slot = _claim(lane, payload, result_bytes)
            if slot is not None:
                size = len(payload)
                lane.publish(slot, model, rows, accepted_ns, deadline_ns, size, key_bytes)
        else:
            slot = lane.send(
                payload, result_bytes, model, rows, accepted_ns, deadline_ns, key_bytes
            )
        if slot is None:
            least = least or self.model.usual_bytes(rows, len(payload))
            if least >= result_bytes:
                lane.counters.add(LaneCounter.REFUSED)
                raise no_room_now(lane.in_flight, lane.capacity, lane.lane_bytes)
            self.send(engine, part, least, least)
            return
        self._engine = engine
        self._part = part
        self._result_bytes = result_bytes
        self._slot = slot
        engine.gateway.wait_for(self, slot)

    def answered(self, slot: int) -> None:
        """The gateway's call: the answer stands in the slot."""
        lane = self._engine.lane
        if slot != self._slot:
            # Abandoned after the slot had been collected.
            lane.release(slot)
            return
        self._slot = -1
        batch = 0
        error: RequestError
        try:
            status, size, batch = lane.outcome(slot)
            answer: A | None = None
            if status is _OK:
                if not self.model.sized:
                    self.model.learn(len(self._part[1]), size + self._before(slot))
                answer = self._take(slot, size, batch)
            else:
                self._refused(slot, status, size)
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it: together they would keep open what
            # the request uses until the garbage collector looks.
            error = failure.with_traceback(None)
        except Exception:
            log.exception("frontend: an answer of model %s failed", self.model.spec.name)
            error = InternalError()
        else:
            if answer is not None:
                self.reply(answer)
            return
        self._failed(error, batch, slot)

    def expired(self, slot: int) -> None:
        """The gateway's call: the deadline passed."""
        self._slot = -1
        waited_ns = self.deadline_ns - self.accepted_ns
        self._failed(no_answer(waited_ns, self.model.spec.timeout_ns), 0, NO_SLOT)

    def abandon(self) -> None:
        """Nobody waits any more; `reply` will not be called."""
        if self._slot >= 0:
            self._engine.gateway.cancel(self._slot)
            self._slot = -1

    def _refused(self, slot: int, status: Status, size: int) -> None:
        lane = self._engine.lane
        too_large = status is Status.RESULT_TOO_LARGE
        before = self._before(slot)
        text = "" if too_large else bytes(self._result(slot, size, before)).decode(errors="replace")
        lane.release(slot)
        if status is Status.EXPIRED:
            # The collector has looked at the clock before the gateway did.
            lane.counters.add(LaneCounter.TIMEOUTS)
        if too_large and size > self._result_bytes:
            self._send_again(size)
            return
        raise error_of(status, text)

    def _send_again(self, needed_bytes: int) -> None:
        lane, payload = self._engine.lane, self._part[1]
        if isinstance(payload, LazyBytes) and payload.slot is not None:
            raise ModelFailed(
                f"the model's answer takes {needed_bytes} bytes, more than its signature says"
            )
        for result_bytes in (again(needed_bytes), needed_bytes):
            if lane.could_hold(self._extents(result_bytes)):
                self.send(self._engine, self._part, result_bytes, needed_bytes)
                lane.count_no_more(self._slot)
                return
        raise answer_too_large(needed_bytes, lane.lane_bytes)

    def _extents(self, result_bytes: int) -> list[tuple[int, int]]:
        """The bytes of all that the request has in slots, and for their answers, given this part
        gets so many."""
        _, payload, _ = self._part
        return [(len(payload), result_bytes)]

    def _before(self, slot: int) -> int:
        """Bytes that stand before the result in its memory."""
        return self._engine.lane.answer_start(slot) if self.model.chained else 0

    def _result(self, slot: int, size: int, before: int = 0) -> memoryview:
        lane = self._engine.lane
        start = lane.result_offset[slot] + before
        return lane.memory[start : start + size]

    @abstractmethod
    def _take(self, slot: int, size: int, batch: int) -> A | None:
        """What to reply with, now that there is a result; None where others are to come."""

    @abstractmethod
    def _failed(self, error: RequestError, batch: int, slot: int) -> None:
        """There is none, and why.

        Args:
            error: why.
            batch: that it was in; 0 where it was in none.
            slot: whose words say more; `NO_SLOT` where none do.
        """


class Task(SlotRequest[A]):
    """A request. It passes through a slot itself where it fits in one.

    Attributes:
        rendering: what its answer is to be.
        tally: where its end is counted.
    """

    __slots__ = ("rendering", "tally")

    def __init__(
        self,
        model: ServedModel,
        rendering: Rendering[A],
        reply: Callable[[A], None],
        accepted_ns: int,
        deadline_ns: int,
        tally: Tally,
    ) -> None:
        self.model = model
        self.tally = tally
        self.rendering = rendering
        self.reply = reply
        self.accepted_ns = accepted_ns
        self.deadline_ns = deadline_ns

    @property
    def holds(self) -> tuple[int, int]:
        """As in `Call`."""
        return 1, len(self._part[1]) + self._result_bytes

    def fail(self, engine: Engine, error: RequestError, batch: int, slot: int) -> None:
        """Tell the client why there is no answer; the other arguments are those of `_failed`."""
        engine.endings.ended(self.tally, status_of(error), self.accepted_ns, slot)
        batch_id = engine.batch_ids.text(batch) if batch else ""
        self.reply(self.rendering.render_error(error, batch_id))

    def abandon(self) -> None:
        """As in `SlotRequest`."""
        if self._slot >= 0:
            self._engine.endings.ended(self.tally, CLIENT_GONE, self.accepted_ns)
        super().abandon()

    def _take(self, slot: int, size: int, batch: int) -> A:
        engine = self._engine
        lane, rows = engine.lane, self._part[0]
        batch_id = engine.batch_ids.text(batch)
        try:
            answer = self.rendering.render_in_place(
                lane.memory,
                rows,
                lane.result_offset[slot] + self._before(slot),
                size,
                batch_id,
            )
        finally:
            lane.release(slot)
        engine.endings.answered(self.tally, self.accepted_ns, rows, batch_id, slot)
        return answer

    def _failed(self, error: RequestError, batch: int, slot: int) -> None:
        self.fail(self._engine, error, batch, slot)


def _claim(lane: Lane, payload: LazyBytes, result_bytes: int) -> int | None:
    """A slot in which the payload stands; as `Lane.claim`."""
    slot = payload.slot
    if slot is not None:
        return slot
    size = len(payload)
    slot = lane.claim(size, result_bytes)
    if slot is not None:
        start = lane.request_offset[slot]
        try:
            payload.read_into(lane.memory[start : start + size])
        except BaseException:
            lane.abort(slot)
            raise
    return slot
