"""One prediction on its way through the lane, from its slot to its reply.

A request that fits in one batch is a `Task` and nothing else. One that does not is a `Split` as
well: its parts run as they can, and their answers are put together again.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ringbatch.frontend.codec.batch_ids import BatchIds
from ringbatch.frontend.codec.outcome import (
    AGENT_TEXT,
    JSON,
    Headers,
    InternalError,
    error_of,
    outcome,
)
from ringbatch.frontend.codec.payload import LazyBytes, SlotPart
from ringbatch.frontend.codec.result_sizes import ResultSizes, again
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.v1.placed_answers import PlacedAnswers
from ringbatch.frontend.v1.protocol import V1Codec
from ringbatch.frontend.v2.protocol import RequestedOutputs, V2Codec
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import DeadlineExceeded, ModelFailed, Overloaded, RequestError
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Status

log = logging.getLogger("ringbatch.frontend")

_OK: Final = Status.OK
Body = bytes | bytearray
Reply = Callable[[int, bytes, Headers], None]
"""Takes a status, a body and headers; Content-Length, Date and Connection are its own affair."""
Results = Sequence[tuple[int, memoryview]]
"""The rows and the result of each part of a request, in order."""
Answered = tuple[bytes, Headers]
"""The body of an answer with status 200, and its headers."""


class Call(Protocol):
    """A prediction that is on its way."""

    def abandon(self) -> None:
        """Nobody waits any more; `reply` will not be called."""


class ServedModel(ResultSizes):
    """One model of the manifest, as this process serves it.

    Attributes:
        spec: what the manifest says.
        reference: what requests for it carry.
        codec: between V1's bodies and slots.
        v2: between V2's bodies and slots.
        placed: V1's answers from where results lie; None where they are not so simple.
        headers: of V1's answers.
        ready_word: where the number of its ready workers stands.
        served_word: where it stands whether there ever was one.
        answer_word: where it stands how long a request that comes now will take.
        row_word: where it stands how much every instance adds that was not counted there.
    """

    def __init__(
        self,
        spec: ModelSpec,
        codec: V1Codec,
        v2: V2Codec,
        placed: PlacedAnswers | None,
        *,
        ready_word: int,
        served_word: int,
        answer_word: int,
        row_word: int,
    ) -> None:
        super().__init__(codec.result_bytes)
        self.spec = spec
        self.reference = spec.reference
        self.headers = AGENT_TEXT if spec.kserve_errors else JSON
        self.codec = codec
        self.v2 = v2
        self.placed = placed
        self.ready_word = ready_word
        self.served_word = served_word
        self.answer_word = answer_word
        self.row_word = row_word


@dataclass(slots=True)
class Engine:
    """What every call needs of the process it is in."""

    gateway: Gateway
    lane: Lane
    batch_ids: BatchIds
    lane_bytes: int


class SlotRequest(ABC):
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
    reply: Reply
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
                raise Overloaded
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
            answered = None
            if status is _OK:
                if not self.model.sized:
                    self.model.learn(len(self._part[1]), size)
                answered = self._take(slot, size, batch)
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
            if answered is not None:
                body, headers = answered
                self.reply(200, body, headers)
            return
        self._failed(error, batch)

    def expired(self, slot: int) -> None:
        """The gateway's call: the deadline passed."""
        self._slot = -1
        timeout_s = (self.deadline_ns - self.accepted_ns) / 1e9
        self._failed(DeadlineExceeded(f"no answer came within {timeout_s:g} s"), 0)

    def abandon(self) -> None:
        """Nobody waits any more; `reply` will not be called."""
        if self._slot >= 0:
            self._engine.gateway.cancel(self._slot)
            self._slot = -1

    def _refused(self, slot: int, status: Status, size: int) -> None:
        lane = self._engine.lane
        too_large = status is Status.RESULT_TOO_LARGE
        text = "" if too_large else bytes(self._result(slot, size)).decode(errors="replace")
        lane.release(slot)
        if status is Status.EXPIRED:
            # The collector has looked at the clock before the gateway did.
            lane.counters.add(LaneCounter.TIMEOUTS)
        if too_large and size > self._result_bytes:
            self._send_again(size)
            return
        raise error_of(status, text)

    def _send_again(self, needed_bytes: int) -> None:
        lane = self._engine.lane
        for result_bytes in (again(needed_bytes), needed_bytes):
            if lane.could_hold(self._extents(result_bytes)):
                self.send(self._engine, self._part, result_bytes, needed_bytes)
                lane.count_no_more(self._slot)
                return
        raise ModelFailed(
            f"the model's answer takes {needed_bytes} bytes, more than there is room for; "
            "[server] lane_bytes bounds what a request and its answer may take"
        )

    def _extents(self, result_bytes: int) -> list[tuple[int, int]]:
        """The bytes of all that the request has in slots, and for their answers, given this part
        gets so many."""
        _, payload, _ = self._part
        return [(len(payload), result_bytes)]

    def _result(self, slot: int, size: int) -> memoryview:
        lane = self._engine.lane
        start = lane.result_offset[slot]
        return lane.memory[start : start + size]

    @abstractmethod
    def _take(self, slot: int, size: int, batch: int) -> Answered | None:
        """What to reply with, now that there is a result; None where others are to come."""

    @abstractmethod
    def _failed(self, error: RequestError, batch: int) -> None:
        """There is none, and why; `batch` is 0 where it was in none."""


class Task(SlotRequest):
    """A request, here of V1. It passes through a slot itself where it fits in one."""

    __slots__ = ("columns",)

    def __init__(
        self, model: ServedModel, columns: bool, reply: Reply, accepted_ns: int, deadline_ns: int
    ) -> None:
        self.model = model
        self.columns = columns
        self.reply = reply
        self.accepted_ns = accepted_ns
        self.deadline_ns = deadline_ns

    def render(self, results: Results, batch_id: str) -> Answered:
        """The answer; raises `RequestError` where there is none to be made of the results."""
        model = self.model
        return model.codec.render(results, self.columns, batch_id), model.headers

    def fail(self, error: RequestError, batch_id: str) -> None:
        """Tell the client why there is no answer."""
        reply_error(self.reply, error, self.model.spec.kserve_errors, batch_id)

    def _take(self, slot: int, size: int, batch: int) -> Answered | None:
        engine = self._engine
        try:
            return self._answer(slot, size, engine.batch_ids.text(batch))
        finally:
            engine.lane.release(slot)

    def _answer(self, slot: int, size: int, batch_id: str) -> Answered:
        rows, _, _ = self._part
        return self.render(((rows, self._result(slot, size)),), batch_id)

    def _failed(self, error: RequestError, batch: int) -> None:
        self.fail(error, self._engine.batch_ids.text(batch) if batch else "")


class PlacedTask(Task):
    """The same in row format, of a model that has `placed` answers."""

    __slots__ = ()

    def _answer(self, slot: int, size: int, batch_id: str) -> Answered:
        model, (rows, _, _) = self.model, self._part
        assert model.placed is not None, "it is for such models alone"
        start = self._engine.lane.result_offset[slot]
        body = model.placed.write(rows, start, size, batch_id)
        return super()._answer(slot, size, batch_id) if body is None else (body, model.headers)


class InferTask(Task):
    """The same of V2."""

    __slots__ = ("requested",)

    def __init__(
        self,
        model: ServedModel,
        requested: RequestedOutputs,
        reply: Reply,
        accepted_ns: int,
        deadline_ns: int,
    ) -> None:
        super().__init__(model, False, reply, accepted_ns, deadline_ns)
        self.requested = requested

    def render(self, results: Results, batch_id: str) -> Answered:
        """As in `Task`."""
        return self.model.v2.render(results, self.requested, batch_id)

    def fail(self, error: RequestError, batch_id: str) -> None:
        """As in `Task`; V2's errors have one form."""
        reply_error(self.reply, error, kserve_errors=False, batch_id=batch_id)


class Split:
    """A request of more instances than one batch may hold: its parts run as they can, and their
    answers are put together again. The first part that fails fails the request."""

    def __init__(self, engine: Engine, task: Task) -> None:
        self._engine = engine
        self._task = task
        self._pieces: list[Piece] = []
        self._over = False

    def send(self, parts: Sequence[SlotPart], sizes: Sequence[int]) -> None:
        """Put every part into a slot with that many bytes for its answer.

        Raises:
            Overloaded: there are not slots or memory enough for all of them.
        """
        self._pieces = [Piece(self._task, rows, self) for rows, _, _ in parts]
        try:
            for piece, part, size in zip(self._pieces, parts, sizes, strict=True):
                piece.send(self._engine, part, size)
                if piece is not self._pieces[0]:
                    piece.count_no_more()
        except BaseException:
            self.abandon()
            raise

    def extents(self, grown: "Piece", result_bytes: int) -> list[tuple[int, int]]:
        """The bytes of its parts, and for the answers to them, where one gets so many for its."""
        return [
            piece.extent if piece is not grown else (piece.extent[0], result_bytes)
            for piece in self._pieces
        ]

    def abandon(self) -> None:
        """Nobody waits any more; `reply` will not be called."""
        self._over = True
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            piece.abandon()

    def join(self, batch: int) -> Answered | None:
        """The answer; None while a piece has no result yet."""
        results = [(p.rows, p.result) for p in self._pieces if p.result is not None]
        if len(results) < len(self._pieces):
            return None
        try:
            return self._task.render(results, self._engine.batch_ids.text(batch))
        finally:
            results.clear()
            self.abandon()

    def failed(self, error: RequestError, batch_id: str) -> None:
        """A piece's call: it has failed."""
        if not self._over:
            self.abandon()
            self._task.fail(error, batch_id)


class Piece(SlotRequest):
    """One part of a split request; it keeps its slot until all of them are answered.

    Attributes:
        rows: instances in it.
        result: the rows' result, once it is there.
    """

    __slots__ = ("_kept", "_whole", "result", "rows")

    def __init__(self, task: Task, rows: int, whole: Split) -> None:
        self.model = task.model
        self.reply = task.reply
        self.accepted_ns = task.accepted_ns
        self.deadline_ns = task.deadline_ns
        self.rows = rows
        self.result: memoryview | None = None
        self._whole = whole
        self._slot = -1
        self._kept = -1

    def abandon(self) -> None:
        """Want nothing any more, and give back what is there."""
        super().abandon()
        if self._kept >= 0:
            self.result = None
            self._engine.lane.release(self._kept)
            self._kept = -1

    def count_no_more(self) -> None:
        """Another piece counts for the request."""
        self._engine.lane.count_no_more(self._slot)

    @property
    def extent(self) -> tuple[int, int]:
        """Its bytes and those for its answer."""
        _, payload, _ = self._part
        return len(payload), self._result_bytes

    def _extents(self, result_bytes: int) -> list[tuple[int, int]]:
        return self._whole.extents(self, result_bytes)

    def _take(self, slot: int, size: int, batch: int) -> Answered | None:
        self._kept, self.result = slot, self._result(slot, size)
        return self._whole.join(batch)

    def _failed(self, error: RequestError, batch: int) -> None:
        batch_id = self._engine.batch_ids.text(batch) if batch else ""
        self._whole.failed(error, batch_id)


def reply_error(reply: Reply, error: RequestError, kserve_errors: bool, batch_id: str = "") -> None:
    """Tell the client why its request failed."""
    reply(*outcome(error, kserve_errors=kserve_errors, batch_id=batch_id))


def _claim(lane: Lane, payload: LazyBytes, result_bytes: int) -> int | None:
    """A slot in which the payload stands; as `Lane.claim`."""
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
