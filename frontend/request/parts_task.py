"""A request whose client wants the answer in parts, as the model makes them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ringbatch.frontend.codec.event_stream import took_nothing
from ringbatch.frontend.codec.limit_messages import expect_one_batch
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.part_limits import (
    NO_LIMITS,
    PartLimits,
    first_deadline_ns,
    limits_of,
    no_part,
)
from ringbatch.frontend.codec.payload import LazyBytes, SlotPart
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.request.gateway import Together
from ringbatch.frontend.request.outcomes import NO_SLOT
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.task import A, Engine, InflightRequest, claim_lazily
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import RequestError
from ringbatch.shm.parts import CorruptPartsError, bytes_for, bytes_for_several
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import Tally

log = logging.getLogger("ringbatch.frontend")

T_contra = TypeVar("T_contra", contravariant=True)
_SECOND_NS: Final = 1_000_000_000


class EnoughParts(Exception):
    """Raised by a receiver that wants no further part: the request ends with status 200."""


def nothing() -> None:
    """Do nothing: parts leave as they come."""


def no_time() -> int:
    """Return 0: the client is expected to take all parts."""
    return 0


def never() -> bool:
    """Return False: the client gets each part as it comes."""
    return False


class DirectParts(Protocol):
    """Way of the parts of one request that need not wait for their client.

    Attributes:
        together: passes on parts like the latest one with those of other requests.
    """

    together: Together | None

    def send(self, memory: memoryview, start: int, size: int) -> bool:
        """Send a part at once, if possible; return whether it is sent.

        Args:
            memory: the segment.
            start: where the part begins, in bytes from the start of the segment.
            size: how many bytes it has.
        """


def no_direct_parts(_rendering: Rendering[Any], _rows: int, _batch_id: str) -> None:
    """Return None: the receiver takes each part."""


class SeveralInParts(Protocol[T_contra]):
    """Receiver of the parts of several requests, whose answers are one for the client."""

    def take(self, number: int, part: T_contra) -> None:
        """Take a part of one of them; may raise `EnoughParts`, which ends this one."""

    def end(self, number: int) -> None:
        """Take the end of one of them.

        Raises:
            RequestError: all of them are to end with it.
        """


class InParts(NamedTuple, Generic[A]):
    """Receiver of the parts of an answer.

    Attributes:
        on_part: takes each part, as if it were the answer; may raise `EnoughParts`.
        end: the reply behind the last part.
        flush: called behind the parts that were found together, unless the answer ends with them.
        limits: that the request asks for.
        joins: whether the client gets the parts as one answer; known once the request is read.
        stalled_s: returns for how many seconds the client has taken nothing, though parts wait.
        several: takes the parts if the client's request is several for the engine; None if it never
            is.
        direct: returns the way of parts that need not come to `on_part`; None if all must. Called
            with the rendering, the rows and the batch's id, once these are known.
    """

    on_part: Callable[[A], None]
    end: A
    flush: Callable[[], None] = nothing
    limits: PartLimits = NO_LIMITS
    joins: Callable[[], bool] = never
    stalled_s: Callable[[], int] = no_time
    several: SeveralInParts[A] | None = None
    direct: Callable[[Rendering[A], int, str], DirectParts | None] = no_direct_parts


class RequestInParts(InflightRequest[A]):
    """A request that gets a call for each part, and `reply` behind the last.

    Its deadline moves: to its first part, then from each part to the next.

    Attributes:
        limits: of its answer.
        direct: the way of its parts that need not wait; None if there is none, or not yet.
        last_ns: arrival of the latest part in nanoseconds; 0 before the first.

    Args:
        model, rendering, reply, accepted_ns, deadline_ns, tally, account: as for
            `InflightRequest`; the rendering writes each part as if it were the answer.
        in_parts: takes the parts.
    """

    __slots__ = (
        "_batch_id",
        "_in_parts",
        "_is_plain",
        "_until_ns",
        "direct",
        "last_ns",
        "limits",
    )
    moves = True

    def __init__(
        self,
        model: ServedModel,
        rendering: Rendering[A],
        reply: Callable[[A], None],
        accepted_ns: int,
        deadline_ns: int,
        tally: Tally,
        account: int,
        in_parts: InParts[A],
    ) -> None:
        super().__init__(model, rendering, reply, accepted_ns, deadline_ns, tally, account)
        self._in_parts = in_parts
        self._batch_id = ""
        """Id of the request's batch; once a part is out, of the batch that was the last."""
        self.direct: DirectParts | None = None
        self.last_ns = 0
        self._until_ns = deadline_ns
        """Deadline of the whole answer in nanoseconds."""
        self.limits = NO_LIMITS
        if not in_parts.joins():
            self.limits = limits_of(model.spec, in_parts.limits, rendering.part_limits)
        self._is_plain = not (self.limits.gap_ns or model.spec.resumes)
        """True if nothing is to be done for a further part but to send and to count it."""
        self._set_up()

    def _set_up(self) -> None:
        """Add nothing to the request."""

    def start(self, engine: Engine, parts: Sequence[SlotPart]) -> None:
        """Send the request on its way, and wait for its first part; raises as `send_in_parts`."""
        self.deadline_ns = first_deadline_ns(self.limits, self.accepted_ns, self._until_ns)
        self.send_in_parts(engine, parts)

    def send_in_parts(self, engine: Engine, parts: Sequence[SlotPart]) -> None:
        """Put the request into a slot.

        Raises:
            InvalidRequest: it does not fit into one batch.
            Overloaded: no slot or no memory is left.
        """
        expect_one_batch([rows for rows, _, _ in parts], self.model.spec.max_batch_size)
        (part,) = parts
        rows, payload, _ = part
        size, model = len(payload), self.model
        usual = bytes_for_several(model.result_bytes(rows, size))
        # Parts may be much smaller than the whole answers that the model has learned from.
        self.send(engine, part, usual, bytes_for(model.least_bytes(rows, size)))

    def _publish(self, engine: Engine, part: SlotPart, result_bytes: int) -> int | None:
        """Publish the request, as in `SlotRequest`, with its wish for parts."""
        lane, model = engine.lane, self.model.reference
        rows, payload, key_bytes = part
        size = len(payload)
        if isinstance(payload, LazyBytes):
            slot = claim_lazily(lane, payload, result_bytes, model)
        else:
            slot = lane.claim(size, result_bytes, model)
            if slot is not None:
                start = lane.request_offset[slot]
                lane.memory[start : start + size] = payload
        if slot is not None:
            self._batch_id, self.direct, self.together = "", None, None
            engine.parts.open(slot)
            accepted_ns, deadline_ns, account = self.accepted_ns, self._until_ns, self.account
            lane.publish(slot, model, rows, accepted_ns, deadline_ns, size, key_bytes, account)
        return slot

    def has_parts(self, slot: int) -> None:
        """Pass on the parts in the slot; called by the gateway."""
        stall_ns = self.model.spec.stream_stall_ns
        if stall_ns and self._in_parts.stalled_s() * _SECOND_NS >= stall_ns:
            self._give_up(slot, stall_ns)
            return
        self._pass_all(slot)
        if slot == self._slot:
            self._in_parts.flush()

    def _give_up(self, slot: int, stall_ns: int) -> None:
        """End the request, whose row holds a place for a client that takes nothing."""
        engine, name = self._engine, self.model.spec.name
        log.warning(
            "frontend: an answer of model %s has ended: its client has taken nothing for %g s",
            name,
            stall_ns / _SECOND_NS,
        )
        engine.lane.counters.add(LaneCounter.STALLED)
        engine.gateway.cancel(slot)
        self._slot = -1
        self.fail(engine, took_nothing(stall_ns), 0, NO_SLOT)

    def _pass_all(self, slot: int) -> None:
        """Pass on the parts in the slot, or fail."""
        error: RequestError
        try:
            self._pass_on(slot)
        except EnoughParts:
            self._end_early(slot)
            return
        except RequestError as failure:
            error = failure.with_traceback(None)
        except CorruptPartsError as defect:
            log.error("frontend: parts of model %s: %s", self.model.spec.name, defect)
            error = InternalError()
        except Exception:
            log.exception("frontend: parts of model %s failed", self.model.spec.name)
            error = InternalError()
        else:
            return
        self._engine.gateway.cancel(slot)
        self._slot = -1
        self.fail(self._engine, error, 0, NO_SLOT)

    def _end_early(self, slot: int) -> None:
        """End the request with status 200 behind the parts that have come."""
        self._engine.gateway.cancel(slot)
        self._slot = -1
        record = self._engine.outcomes.record
        record(self.tally, 200, self.accepted_ns, account=self.account, instances=self._part[0])
        self.reply(self._in_parts.end)

    def _pass_on(self, slot: int) -> None:
        engine = self._engine
        parts, memory, rows = engine.parts, engine.lane.memory, self._part[0]
        # One look at the clock for all that have come together.
        now_ns, times = engine.outcomes.clock(), self.tally.parts
        gap_ns = self.limits.gap_ns
        deadline_ns = min(now_ns + gap_ns, self._until_ns) if gap_ns else self._until_ns
        found = parts.next(slot)
        while found is not None and slot == self._slot:
            start, size = found
            if not self._batch_id:
                self._batch_id = engine.batch_ids.text(parts.batch(slot))
                self.direct = self._in_parts.direct(self.rendering, rows, self._batch_id)
            direct, answer = self.direct, None
            if direct is None or not direct.send(memory, start, size):
                answer = self.rendering.render_in_place(memory, rows, start, size, self._batch_id)
            self._keep(start, size)
            others = parts.take(slot, size)
            self.deadline_ns = deadline_ns
            if gap_ns and not self.last_ns:
                engine.gateway.expect_sooner(deadline_ns, slot)
            self.last_ns = times.count(now_ns, self.last_ns, self.accepted_ns)
            if direct is not None and self._is_plain:
                self.together = direct.together
            if answer is not None:
                self._in_parts.on_part(answer)
            found = parts.next(slot) if others else None

    def _keep(self, start: int, size: int) -> None:
        """Keep nothing of a part, which stands there until it is taken."""

    def answered(self, slot: int) -> None:
        """Pass on what is left, and the end; called by the gateway."""
        self._pass_all(slot)
        engine = self._engine
        status, _, batch = engine.lane.outcome(slot)
        if slot != self._slot or status is not Status.OK:
            super().answered(slot)
            return
        self._slot = -1
        rows, batch_id = self._part[0], engine.batch_ids.text(batch)
        engine.lane.release(slot)
        engine.outcomes.answered(self.tally, self.accepted_ns, rows, batch_id, slot)
        self.reply(self._in_parts.end)

    def expired(self, slot: int) -> None:
        """As in `SlotRequest`, also if the next part alone is late."""
        if self.deadline_ns == self._until_ns:
            super().expired(slot)
            return
        self._slot = -1
        late = no_part(self.limits, self.model.spec, begun=bool(self.last_ns))
        self._failed(late, 0, NO_SLOT)

    def _before(self, slot: int) -> int:
        return self._engine.lane.answer_start(slot)
