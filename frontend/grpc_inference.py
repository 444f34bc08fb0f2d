"""Everything between the bytes of a ModelInferRequest and those of its answer.

As in `service`, nothing is awaited: `Inference.start` returns at once, and the answer is a call of
the `reply` it was given, later or before it returns. No error leaves as an exception.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from ringbatch.frontend.calls import Answered, Call, Model, Results, Task
from ringbatch.frontend.grpc_answer import GrpcAnswers
from ringbatch.frontend.grpc_messages import inference
from ringbatch.frontend.grpc_request import GrpcWants, reader
from ringbatch.frontend.outcome import BATCH_HEADER, Headers, InternalError
from ringbatch.frontend.service import Service
from ringbatch.frontend.v2_memory import ClientMemory
from ringbatch.shm.errors import DeadlineExceeded, InvalidRequest, RequestError
from ringbatch.shm.manifest import ModelSpec

log = logging.getLogger("ringbatch.frontend")

_Request: Final = inference("ModelInferRequest")


class Inferred(NamedTuple):
    """How a request ended.

    Attributes:
        id: the request's own; empty where it has none or cannot be read.
        response: the bytes of a ModelInferResponse; empty where there is an error.
        error: why there is none.
        batch_id: of the batch the request was in; empty where it was in none.
    """

    id: str
    response: bytes
    error: RequestError | None
    batch_id: str


Reply = Callable[[Inferred], None]


class Inference:
    """Inference over gRPC.

    Args:
        service: the models.
        clock: monotonic nanoseconds.
    """

    def __init__(self, service: Service, clock: Callable[[], int]) -> None:
        self._service = service
        self._clock = clock
        self._models: dict[Model, _GrpcModel] = {}

    def start(self, data: bytes, remaining_s: float | None, reply: Reply) -> Call | None:
        """Answer a request.

        Args:
            data: a ModelInferRequest.
            remaining_s: how long the client will wait; None where it does not say.
            reply: called once, unless the call is abandoned first.

        Returns:
            The call that is on its way; None where `reply` was called already.
        """
        self._service.engine.gateway.between_requests()
        accepted_ns = self._clock()
        waiting = _Waiting(reply)
        error: RequestError
        try:
            request = _parsed(data)
            waiting.id = request.id
            model = self._service.model(request.model_name, request.model_version)
            own = self._models.get(model) or self._own(model)
            parts, wants = own.read(request)
            self._service.expect_served(model)
            timeout_ns = min(wants.timeout_ns or model.spec.timeout_ns, model.spec.timeout_ns)
            if remaining_s is not None:
                timeout_ns = min(timeout_ns, int(remaining_s * 1e9))
            if timeout_ns <= 0:
                raise DeadlineExceeded
            deadline_ns = accepted_ns + timeout_ns
            task = GrpcTask(model, own.answers, wants, waiting, accepted_ns, deadline_ns)
            if parts:
                return self._service.send(task, parts)
            answer = task.render((), "")
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it.
            error = failure.with_traceback(None)
        except Exception:
            log.exception("grpc frontend: a request failed")
            error = InternalError()
        else:
            task.reply(200, *answer)
            return None
        waiting.fail(error, "")
        return None

    def _own(self, model: Model) -> "_GrpcModel":
        """What is needed of a model beyond what the service has; that of others that serve no
        longer is forgotten."""
        serving = {self._service.model(s.name, s.version) for s in self._service.specs}
        self._models = {known: own for known, own in self._models.items() if known in serving}
        own = self._models[model] = _GrpcModel(model.spec, self._service.regions)
        return own


class _Waiting:
    """Who waits for an answer, and the id of the request."""

    __slots__ = ("_reply", "id")

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.id = ""

    def answer(self, _status: int, response: bytes, headers: Headers) -> None:
        """The answer is there; its one header has the id of the batch."""
        ((_, batch_id),) = headers
        self._reply(Inferred(self.id, response, None, batch_id))

    def fail(self, error: RequestError, batch_id: str) -> None:
        """There is none."""
        self._reply(Inferred(self.id, b"", error, batch_id))


class GrpcTask(Task):
    """What is the same for all parts of a request over gRPC."""

    __slots__ = ("_answers", "_waiting", "_wants")

    def __init__(
        self,
        model: Model,
        answers: GrpcAnswers,
        wants: GrpcWants,
        waiting: _Waiting,
        accepted_ns: int,
        deadline_ns: int,
    ) -> None:
        super().__init__(model, False, waiting.answer, accepted_ns, deadline_ns)
        self._answers = answers
        self._waiting = waiting
        self._wants = wants

    def render(self, results: Results, batch_id: str) -> Answered:
        """As in `Task`."""
        return self._answers.render(results, self._wants), ((BATCH_HEADER, batch_id),)

    def fail(self, error: RequestError, batch_id: str) -> None:
        """As in `Task`."""
        self._waiting.fail(error, batch_id)


class _GrpcModel:
    """What reads requests to one model, and what writes its answers."""

    def __init__(self, spec: ModelSpec, memory: ClientMemory) -> None:
        self.read = reader(spec, memory)
        self.answers = GrpcAnswers(spec)


def _parsed(data: bytes) -> Any:
    try:
        return _Request.FromString(data)
    except DecodeError:
        raise InvalidRequest("the message is no ModelInferRequest") from None
