"""One prediction on its way through the lane, from its slot to its reply.

A request that fits in one batch is a `Single`, with nothing that only larger ones need. One that
does not is a `Split`: its parts run as they can, and their answers are put together again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ringbatch.frontend.batch_ids import BatchIds
from ringbatch.frontend.gateway import Gateway
from ringbatch.frontend.outcome import AGENT_TEXT, JSON, Headers, InternalError, error_of, outcome
from ringbatch.frontend.payload import UnreadPart
from ringbatch.frontend.rooms import Rooms, again
from ringbatch.frontend.v1 import Part, V1Codec
from ringbatch.frontend.v2 import V2Codec, Wants
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import DeadlineExceeded, ModelFailed, Overloaded, RequestError
from ringbatch.shm.lane import Answer
from ringbatch.shm.layout import aligned
from ringbatch.shm.manifest import ModelSpec
from ringbatch.shm.slot import Status

log = logging.getLogger("ringbatch.frontend")

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


class Model(Rooms):
    """One model of the manifest, as this process serves it.

    Attributes:
        spec: what the manifest says.
        codec: between V1's bodies and slots.
        v2: between V2's bodies and slots.
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
        *,
        ready_word: int,
        served_word: int,
        answer_word: int,
        row_word: int,
    ) -> None:
        super().__init__(codec.result_bytes)
        self.spec = spec
        self.headers = AGENT_TEXT if spec.kserve_errors else JSON
        self.codec = codec
        self.v2 = v2
        self.ready_word = ready_word
        self.served_word = served_word
        self.answer_word = answer_word
        self.row_word = row_word


@dataclass(slots=True)
class Engine:
    """What every call needs of the process it is in."""

    gateway: Gateway
    batch_ids: BatchIds
    lane_bytes: int


class Task:
    """What is the same for all parts of a request, here of a V1 request."""

    __slots__ = ("accepted_ns", "columns", "deadline_ns", "model", "reply")

    def __init__(
        self, model: Model, columns: bool, reply: Reply, accepted_ns: int, deadline_ns: int
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


class InferTask(Task):
    """The same of a V2 request."""

    __slots__ = ("wants",)

    def __init__(
        self, model: Model, wants: Wants, reply: Reply, accepted_ns: int, deadline_ns: int
    ) -> None:
        super().__init__(model, False, reply, accepted_ns, deadline_ns)
        self.wants = wants

    def render(self, results: Results, batch_id: str) -> Answered:
        """As in `Task`."""
        return self.model.v2.render(results, self.wants, batch_id)

    def fail(self, error: RequestError, batch_id: str) -> None:
        """As in `Task`; V2's errors have one form."""
        reply_error(self.reply, error, kserve_errors=False, batch_id=batch_id)


class Single:
    """A request that fits in one slot."""

    __slots__ = ("_engine", "_part", "_room", "_slot", "_task")

    def __init__(self, engine: Engine, task: Task, part: Part | UnreadPart) -> None:
        self._engine = engine
        self._task = task
        self._part = part
        self._slot = -1
        self._room = 0

    def send(self, room: int) -> None:
        """Put it into a slot with that many bytes for the answer.

        Raises:
            Overloaded: no slot or no memory is left.
        """
        task, (rows, payload, key_bytes) = self._task, self._part
        slot = self._engine.gateway.submit(
            self,
            task.model.spec.reference,
            rows,
            payload,
            key_bytes,
            room,
            task.accepted_ns,
            task.deadline_ns,
        )
        if slot is None:
            raise Overloaded
        self._slot = slot
        self._room = room

    def answered(self, slot: int) -> None:
        """The gateway's call: the answer stands in the slot."""
        gateway = self._engine.gateway
        if slot != self._slot:
            # Abandoned after the slot had been collected.
            gateway.lane.release(slot)
            return
        self._slot = -1
        batch = 0
        error: RequestError
        try:
            answer, result = gateway.answer(slot)
            batch = answer.batch
            answered = self._read(slot, answer, result)
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it: together they would keep open what
            # the request uses until the garbage collector looks.
            error = failure.with_traceback(None)
        except Exception:
            log.exception("frontend: an answer of model %s failed", self._task.model.spec.name)
            error = InternalError()
        else:
            if answered is not None:
                body, headers = answered
                self._task.reply(200, body, headers)
            return
        self._failed(error, batch)

    def expired(self, slot: int) -> None:
        """The gateway's call: the deadline passed."""
        self._slot = -1
        timeout_s = (self._task.deadline_ns - self._task.accepted_ns) / 1e9
        self._failed(DeadlineExceeded(f"no answer came within {timeout_s:g} s"), 0)

    def abandon(self) -> None:
        """Nobody waits any more; `reply` will not be called."""
        if self._slot >= 0:
            self._engine.gateway.cancel(self._slot)
            self._slot = -1

    def _read(self, slot: int, answer: Answer, result: memoryview) -> Answered | None:
        """What to reply with; None where there is nothing yet."""
        if answer.status is Status.OK:
            model = self._task.model
            if not model.sized:
                model.learn(answer.size)
            return self._take(slot, answer, result)
        too_large = answer.status is Status.RESULT_TOO_LARGE
        text = "" if too_large else bytes(result).decode(errors="replace")
        lane = self._engine.gateway.lane
        lane.release(slot)
        if answer.status is Status.EXPIRED:
            # The collector has looked at the clock before the gateway did.
            lane.counters.add(LaneCounter.TIMEOUTS)
        if too_large and answer.size > self._room:
            self._send_again(answer.size)
            return None
        raise error_of(answer.status, text)

    def _send_again(self, result_bytes: int) -> None:
        room = again(result_bytes)
        if aligned(len(self._part.payload)) + room > self._engine.lane_bytes:
            raise ModelFailed(
                f"the model's answer takes {result_bytes} bytes, more than there is room for"
            )
        self.send(room)

    def _take(self, slot: int, answer: Answer, result: memoryview) -> Answered | None:
        engine = self._engine
        try:
            return self._task.render(
                [(self._part.rows, result)], engine.batch_ids.text(answer.batch)
            )
        finally:
            engine.gateway.lane.release(slot)

    def _failed(self, error: RequestError, batch: int) -> None:
        self._task.fail(error, self._engine.batch_ids.text(batch) if batch else "")


class Split:
    """A request of more instances than one batch may hold: its parts run as they can, and their
    answers are put together again. The first part that fails fails the request."""

    def __init__(self, engine: Engine, task: Task, parts: tuple[Part | UnreadPart, ...]) -> None:
        self._engine = engine
        self._task = task
        self._pieces = [Piece(engine, task, part, self) for part in parts]
        self._over = False

    def send(self, rooms: list[int]) -> None:
        """Put every piece into a slot with that many bytes for its answer.

        Raises:
            Overloaded: there are not slots or memory enough for all of them.
        """
        try:
            for piece, room in zip(self._pieces, rooms, strict=True):
                piece.send(room)
        except BaseException:
            self.abandon()
            raise

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


class Piece(Single):
    """One part of a split request; it keeps its slot until all of them are answered."""

    __slots__ = ("_kept", "_whole", "result")

    def __init__(self, engine: Engine, task: Task, part: Part | UnreadPart, whole: Split) -> None:
        super().__init__(engine, task, part)
        self._whole = whole
        self._kept = -1
        self.result: memoryview | None = None

    @property
    def rows(self) -> int:
        """Instances in this part."""
        return self._part.rows

    def abandon(self) -> None:
        """Want nothing any more, and give back what is there."""
        super().abandon()
        if self._kept >= 0:
            self.result = None
            self._engine.gateway.lane.release(self._kept)
            self._kept = -1

    def _take(self, slot: int, answer: Answer, result: memoryview) -> Answered | None:
        self._kept, self.result = slot, result
        return self._whole.join(answer.batch)

    def _failed(self, error: RequestError, batch: int) -> None:
        batch_id = self._engine.batch_ids.text(batch) if batch else ""
        self._whole.failed(error, batch_id)


def reply_error(reply: Reply, error: RequestError, kserve_errors: bool, batch_id: str = "") -> None:
    """Tell the client why its request failed."""
    reply(*outcome(error, kserve_errors=kserve_errors, batch_id=batch_id))
