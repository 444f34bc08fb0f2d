"""A request on its way through the lane, from its slot to its reply.

A request that fits in one batch is an `InflightRequest` and nothing else; what it asks of its
protocol stands in its rendering. One that does not is a
`ringbatch.frontend.request.split.SplitRequest` as well.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from ringbatch.frontend.codec.limit_messages import (
    answer_too_large,
    no_answer,
    too_many_large,
)
from ringbatch.frontend.codec.outcome import InternalError, error_of, status_of
from ringbatch.frontend.codec.payload import LazyBytes, SlotPart
from ringbatch.frontend.codec.refusal import no_room_in
from ringbatch.frontend.codec.rendering import OffloadJob, Rendering
from ringbatch.frontend.codec.result_sizes import again
from ringbatch.frontend.offload.messages import Received
from ringbatch.frontend.offload.process import Broken
from ringbatch.frontend.request.gateway import Gateway, Together
from ringbatch.frontend.request.offload_process import OtherProcess
from ringbatch.frontend.request.outcomes import NO_SLOT, RequestOutcomes
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import ModelFailed, RequestError
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.parts import PartReader
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import CLIENT_GONE, Tally

log = logging.getLogger("ringbatch.frontend")

A = TypeVar("A")
"""Type of the answers of a protocol."""
SMALL_RESULT_BYTES: Final = 1 << 12
"""The most bytes of a result that never takes long to write, in any form."""
_GUESSED: Final = 8
"""A guess assumes that so many requests of its size fill the lane."""
_OK: Final = Status.OK


@dataclass(slots=True)
class Engine:
    """Parts of its process that every call needs."""

    gateway: Gateway
    lane: Lane
    parts: PartReader
    batch_ids: BatchIds
    lane_bytes: int
    outcomes: RequestOutcomes
    apart: OtherProcess
    refusal: Callable[[ModelSpec], RequestError]


def guess(engine: Engine) -> tuple[int, int]:
    """Return a guess of `RequestHandle.holds` for a request whose size is still unknown."""
    return engine.lane.capacity // _GUESSED, engine.lane_bytes // _GUESSED


class SlotRequest(ABC, Generic[A]):
    """Request, or part of one, on its way through a slot. The gateway calls it once it is sent.

    Attributes:
        model: the model that it is for.
        reply: called once, unless it is abandoned first.
        accepted_ns: when the request arrived.
        deadline_ns: when its client gives up.
        moves: as of `ringbatch.frontend.request.gateway.SlotWaiter`.
        account: its account word, see `ringbatch.shm.account`.
        together: as of `SlotWaiter`.
    """

    __slots__ = (
        "_engine",
        "_part",
        "_result_bytes",
        "_slot",
        "accepted_ns",
        "account",
        "deadline_ns",
        "model",
        "reply",
        "together",
    )

    _engine: Engine
    _part: SlotPart
    _result_bytes: int
    _slot: int
    model: ServedModel
    reply: Callable[[A], None]
    accepted_ns: int
    deadline_ns: int
    account: int
    moves: bool = False
    together: Together | None

    def send(self, engine: Engine, part: SlotPart, result_bytes: int, least: int = 0) -> None:
        """Put a part into a slot with that many bytes for the answer.

        Args:
            engine: of this process.
            part: what goes into the slot.
            result_bytes: what the answer is likely to take.
            least: how many bytes will do if memory is short; by default what most answers take.

        Raises:
            Overloaded: no slot or no memory is left.
            InvalidRequest: the payload is lazy, and cannot be read.
        """
        slot = self._publish(engine, part, result_bytes)
        if slot is None:
            least = least or self.model.usual_bytes(part[0], len(part[1]))
            if least >= result_bytes:
                raise no_room_in(engine.lane)
            self.send(engine, part, least, least)
            return
        self._engine = engine
        self._part = part
        self._result_bytes = result_bytes
        self._slot = slot
        engine.gateway.wait_for(self, slot)

    def _publish(self, engine: Engine, part: SlotPart, result_bytes: int) -> int | None:
        """Publish a part in a slot, and return the slot; None if slots or memory are used up."""
        lane, model = engine.lane, self.model.reference
        rows, payload, key_bytes = part
        accepted_ns, deadline_ns, account = self.accepted_ns, self.deadline_ns, self.account
        if not isinstance(payload, LazyBytes):
            return lane.send(
                payload, result_bytes, model, rows, accepted_ns, deadline_ns, key_bytes, account
            )
        slot = claim_lazily(lane, payload, result_bytes, model)
        if slot is not None:
            size = len(payload)
            lane.publish(slot, model, rows, accepted_ns, deadline_ns, size, key_bytes, account)
        return slot

    def answered(self, slot: int) -> None:
        """Take the answer in the slot; called by the gateway."""
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

    def has_parts(self, slot: int) -> None:
        """Do nothing: no part is wanted, see `ringbatch.frontend.request.parts_task`."""

    def expired(self, slot: int) -> None:
        """End the request at its deadline; called by the gateway."""
        self._slot = -1
        waited_ns = self.deadline_ns - self.accepted_ns
        self._failed(no_answer(waited_ns, self.model.spec.timeout_ns), 0, NO_SLOT)

    def abandon(self) -> None:
        """Abandon the request, as nobody waits any more; `reply` will not be called."""
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
        elif status is Status.OVERLOADED:
            lane.counters.add(LaneCounter.REFUSED)
        if too_large and size > self._result_bytes:
            self._send_again(size)
            return
        if status is Status.NO_WORKER and not text:
            raise self._engine.refusal(self.model.spec)
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
        """Return the bytes of the request and its answers in slots, if this part gets a size."""
        _, payload, _ = self._part
        return [(len(payload), result_bytes)]

    def _before(self, slot: int) -> int:
        """Return the bytes that stand before the result in its memory."""
        return self._engine.lane.answer_start(slot) if self.model.chained else 0

    def _result(self, slot: int, size: int, before: int = 0) -> memoryview:
        lane = self._engine.lane
        start = lane.result_offset[slot] + before
        return lane.memory[start : start + size]

    @abstractmethod
    def _take(self, slot: int, size: int, batch: int) -> A | None:
        """Return the answer, now that there is a result; None if others are to come."""

    @abstractmethod
    def _failed(self, error: RequestError, batch: int, slot: int) -> None:
        """Fail the request: there is no result.

        Args:
            error: why.
            batch: that it was in; 0 if it was in none.
            slot: whose words say more; `NO_SLOT` if none do.
        """


class Writing(Generic[A]):
    """An answer that another process is writing.

    Args:
        engine: the engine of this process.
        task: the request.
        rows: the number of instances in the request.
        batch: the batch of its last part.
        slot: the slot of its last part.
        release: gives back all slots of the request; their results are read until then.
    """

    def __init__(
        self,
        engine: Engine,
        task: "InflightRequest[A]",
        rows: int,
        batch: int,
        slot: int,
        release: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._task = task
        self._rows = rows
        self._batch = batch
        self._slot = slot
        self._release = release
        self._over = False

    def begin(self, apart: OffloadJob, results: Sequence[memoryview]) -> None:
        """Have the other process write the answer, on the running loop.

        Raises:
            Overloaded: too many answers wait already.
        """
        other = self._engine.apart
        if not other.queue.has_room(sum(map(len, results))):
            self._engine.lane.counters.add(LaneCounter.REFUSED)
            raise too_many_large(other.queue.most)
        job, value = apart
        other.submit(self._is_wanted, job, value, results).add_done_callback(self._done)

    def abandon(self) -> None:
        """Give up the answer: its client has left."""
        if not self._over:
            self._over = True
            task = self._task
            record = self._engine.outcomes.record
            record(task.tally, CLIENT_GONE, task.accepted_ns, account=task.account)
            # Other requests may use the slots now, because the answer written from them is dropped.
            self._release()

    def _is_wanted(self) -> bool:
        return not self._over

    def _done(self, future: "asyncio.Future[Received | None]") -> None:
        if self._over:
            # Otherwise asyncio logs that nobody has retrieved the exception.
            future.exception()
            return
        self._over = True
        self._release()
        engine, task = self._engine, self._task
        try:
            found = future.result()
            assert found is not None, "it was wanted"
            value, data = found
            answer = task.rendering.written(value, data)
        except RequestError as error:
            task.fail(engine, error.with_traceback(None), self._batch, self._slot)
        except Broken as defect:
            log.error("frontend: a large answer was not written: %s", defect)
            task.fail(engine, InternalError(), self._batch, self._slot)
        else:
            batch_id = engine.batch_ids.text(self._batch)
            slot = self._slot
            engine.outcomes.answered(task.tally, task.accepted_ns, self._rows, batch_id, slot)
            task.reply(answer)


class InflightRequest(SlotRequest[A]):
    """A request. It passes through a slot itself if it fits in one.

    Attributes:
        rendering: what its answer is to be.
        tally: where its end is counted.
    """

    __slots__ = ("_writing", "rendering", "tally")

    def __init__(
        self,
        model: ServedModel,
        rendering: Rendering[A],
        reply: Callable[[A], None],
        accepted_ns: int,
        deadline_ns: int,
        tally: Tally,
        account: int = 0,
    ) -> None:
        self.model = model
        self.tally = tally
        self.rendering = rendering
        self.reply = reply
        self.accepted_ns = accepted_ns
        self.deadline_ns = deadline_ns
        self.account = account
        self.together = None
        self._writing: Writing[A] | None = None

    @property
    def holds(self) -> tuple[int, int]:
        """The request's one slot, and the bytes that it holds there."""
        return 1, len(self._part[1]) + self._result_bytes

    def fail(self, engine: Engine, error: RequestError, batch: int, slot: int) -> None:
        """Tell the client why there is no answer; the other arguments are those of `_failed`."""
        code = status_of(error)
        engine.outcomes.record(
            self.tally, code, self.accepted_ns, slot, self.account, deadline_ns=self.deadline_ns
        )
        batch_id = engine.batch_ids.text(batch) if batch else ""
        self.reply(self.rendering.render_error(error, batch_id))

    def abandon(self) -> None:
        """As in `SlotRequest`."""
        if self._slot >= 0:
            record = self._engine.outcomes.record
            record(self.tally, CLIENT_GONE, self.accepted_ns, account=self.account)
        elif self._writing is not None:
            self._writing.abandon()
        super().abandon()

    def _take(self, slot: int, size: int, batch: int) -> A | None:
        engine = self._engine
        lane, rows = engine.lane, self._part[0]
        batch_id = engine.batch_ids.text(batch)
        if size > SMALL_RESULT_BYTES and self._writes_apart(slot, size, batch, batch_id):
            return None
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
        engine.outcomes.answered(self.tally, self.accepted_ns, rows, batch_id, slot)
        return answer

    def _writes_apart(self, slot: int, size: int, batch: int, batch_id: str) -> bool:
        """Have another process write the answer, if it is large; return whether it does."""
        engine, rows = self._engine, self._part[0]
        apart = self.rendering.apart((rows,), size, batch_id)
        if apart is None:
            return False
        release = partial(engine.lane.release, slot)
        self._writing = Writing(engine, self, rows, batch, slot, release)
        try:
            self._writing.begin(apart, [self._result(slot, size, self._before(slot))])
        except RequestError:
            release()
            raise
        return True

    def _failed(self, error: RequestError, batch: int, slot: int) -> None:
        self.fail(self._engine, error, batch, slot)


def claim_lazily(lane: Lane, payload: LazyBytes, result_bytes: int, model: int) -> int | None:
    """Claim a slot and write the payload into it; as `Lane.claim`."""
    slot = payload.slot
    if slot is not None:
        return slot
    size = len(payload)
    slot = lane.claim(size, result_bytes, model)
    if slot is not None:
        start = lane.request_offset[slot]
        try:
            payload.read_into(lane.memory[start : start + size])
        except BaseException:
            lane.abort(slot)
            raise
    return slot
