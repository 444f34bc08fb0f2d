"""Everything between the body of a prediction request and the body of its answer.

Both ways into the process, the fast lane and Falcon, end here, so that they cannot differ in what
they answer. Nothing is awaited: `Service.predict` returns at once, and the answer is a call of the
`reply` it was given, later or before it returns. No error leaves this module as an exception.
"""

import logging
from collections.abc import Callable

from ringbatch.frontend.batch_ids import BatchIds
from ringbatch.frontend.calls import (
    Body,
    Call,
    Engine,
    InferTask,
    Model,
    Reply,
    Single,
    Split,
    Task,
    reply_error,
)
from ringbatch.frontend.gateway import Gateway
from ringbatch.frontend.outcome import InternalError
from ringbatch.frontend.v1 import Part, V1Codec
from ringbatch.frontend.v2 import V2Codec
from ringbatch.shm.counters import Counters
from ringbatch.shm.errors import (
    ModelNotFound,
    ModelNotReady,
    RequestError,
    RequestTooLarge,
)
from ringbatch.shm.layout import MODEL_READY, MODEL_SERVED, WORD, aligned
from ringbatch.shm.segment import Segment

log = logging.getLogger("ringbatch.frontend")


class Service:
    """The models of a segment, through this process's gateway.

    Args:
        segment: where the models are described.
        gateway: through which requests go.
        clock: monotonic nanoseconds.
    """

    def __init__(self, segment: Segment, gateway: Gateway, clock: Callable[[], int]) -> None:
        self._segment = segment
        self._words = segment.words
        self._clock = clock
        self.models = {
            spec.name: Model(
                spec,
                V1Codec(spec),
                V2Codec(spec),
                ready_word=(segment.layout.model(spec.index) + MODEL_READY) // WORD,
                served_word=(segment.layout.model(spec.index) + MODEL_SERVED) // WORD,
            )
            for spec in segment.models
        }
        self._comfortable_bytes = segment.layout.lane_bytes >> 1
        self.engine = Engine(gateway, BatchIds(segment.identity), segment.layout.lane_bytes)

    def predict(self, name: str, body: Body, reply: Reply) -> Call | None:
        """Answer a request.

        Args:
            name: the model's.
            body: the request's, undecoded.
            reply: called once, unless the call is abandoned first.

        Returns:
            The call that is on its way; None where `reply` was called already.
        """
        accepted_ns = self._clock()
        model = self.models.get(name)
        if model is None:
            reply_error(reply, self._no_such_model(name), kserve_errors=False)
            return None
        spec = model.spec
        try:
            parts, columns = model.codec.parse(body)
            # Where a worker only died, the request waits for the next one, like those in flight.
            if not self._words[model.served_word]:
                raise _not_ready(name)
            task = Task(model, columns, reply, accepted_ns, accepted_ns + spec.timeout_ns)
            return self._send(task, parts)
        except RequestError as error:
            reply_error(reply, error, kserve_errors=spec.kserve_errors)
        except Exception:
            log.exception("frontend: a request to model %s failed", name)
            reply_error(reply, InternalError(), kserve_errors=spec.kserve_errors)
        return None

    def infer(self, name: str, body: Body, json_bytes: int | None, reply: Reply) -> Call | None:
        """Answer a V2 request.

        Args:
            name, body, reply: as for `predict`.
            json_bytes: where the JSON text of the body ends, as its header says; None where the
                body is nothing else.

        Returns:
            As `predict`.
        """
        accepted_ns = self._clock()
        model = self.models.get(name)
        try:
            if model is None:
                raise self._no_such_model(name)
            parts, wants = model.v2.parse(body, json_bytes)
            if not self._words[model.served_word]:
                raise _not_ready(name)
            timeout_ns = min(wants.timeout_ns or model.spec.timeout_ns, model.spec.timeout_ns)
            task = InferTask(model, wants, reply, accepted_ns, accepted_ns + timeout_ns)
            if parts:
                return self._send(task, parts)
            answer = task.render((), "")
        except RequestError as error:
            reply_error(reply, error, kserve_errors=False)
        except Exception:
            log.exception("frontend: a request to model %s failed", name)
            reply_error(reply, InternalError(), kserve_errors=False)
        else:
            reply(200, *answer)
        return None

    def _send(self, task: Task, parts: tuple[Part, ...]) -> Call:
        if len(parts) > 1:
            return self._split(task, parts)
        part = parts[0]
        room = task.model.result_bytes(part.rows, len(part.payload))
        if room + len(part.payload) > self._comfortable_bytes:
            self._expect_room(parts, [room])
        call = Single(self.engine, task, part)
        call.send(room)
        return call

    def _split(self, task: Task, parts: tuple[Part, ...]) -> Split:
        rooms = [task.model.result_bytes(part.rows, len(part.payload)) for part in parts]
        self._expect_room(parts, rooms)
        call = Split(self.engine, task, parts)
        call.send(rooms)
        return call

    def _expect_room(self, parts: tuple[Part, ...], rooms: list[int]) -> None:
        """Refuse for good what would not fit even if nothing else were there."""
        lane = self.engine.gateway.lane
        if len(parts) > lane.capacity:
            rows = sum(part.rows for part in parts)
            raise RequestTooLarge(
                f"the request has {rows} instances, which make {len(parts)} batches; "
                f"at most {lane.capacity} fit at once"
            )
        size = sum(aligned(len(p.payload)) + room for p, room in zip(parts, rooms, strict=True))
        if size > self.engine.lane_bytes:
            raise RequestTooLarge(
                f"the request and its answer take {size} bytes, more than the "
                f"{self.engine.lane_bytes} there are for requests"
            )

    def check(self, name: str) -> None:
        """Return where the model can predict now.

        Raises:
            ModelNotFound, ModelNotReady.
        """
        model = self.models.get(name)
        if model is None:
            raise self._no_such_model(name)
        if not self._words[model.ready_word]:
            raise _not_ready(name)

    def counters(self, name: str) -> Counters:
        """What was counted for a model that is there."""
        index = self.models[name].spec.index
        return Counters(self._words, self._segment.layout.model_counters(index))

    @property
    def draining(self) -> bool:
        """Whether the engine is being stopped."""
        return self._segment.draining

    def _no_such_model(self, name: str) -> ModelNotFound:
        shown = name if len(name) <= 128 else f"{name[:128]}..."
        known = ", ".join(self.models)
        return ModelNotFound(f'there is no model "{shown}"; there is: {known}')


def _not_ready(name: str) -> ModelNotReady:
    return ModelNotReady(f'model "{name}" is not ready: no worker holds it now')
