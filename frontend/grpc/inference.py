"""Everything between the bytes of a ModelInferRequest and those of its answer.

As in `service`, nothing is awaited: `Inference.start` returns at once, and the future it was given
is done later, or before it returns. No error leaves as an exception.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from ringbatch.frontend.codec.outcome import BATCH_HEADER, Headers, InternalError
from ringbatch.frontend.codec.payload import LazyPart, Part
from ringbatch.frontend.grpc.answer import GrpcAnswers, batch_field, id_field
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.remembered_heads import Heads
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs, reader
from ringbatch.frontend.request.calls import Answered, Call, Results, ServedModel, Task
from ringbatch.frontend.request.service import Parts, Service
from ringbatch.frontend.v2.shared_memory import ClientMemory
from ringbatch.shm.errors import DeadlineExceeded, InvalidRequest, RequestError
from ringbatch.shm.tuples import new_tuple

log = logging.getLogger("ringbatch.frontend")

_Request: Final = inference("ModelInferRequest")


class Pending:
    """A request that is on its way, and how it ended.

    Attributes:
        ended: is done once it has.
        id: the field with its id, as it is in a response; empty where it has none or cannot be
            read.
        response: the bytes of a ModelInferResponse; empty where there is an error.
        error: why there is none.
        trailing: metadata with the batch that the request failed in; empty where it was in none.
        call: on which the answer depends; None where it has ended.
    """

    __slots__ = ("call", "ended", "error", "id", "response", "trailing")

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self.ended = ended
        self.id = b""
        self.response = b""
        self.error: RequestError | None = None
        self.trailing: Headers = ()
        self.call: Call | None = None

    def answer(self, _status: int, response: bytes, headers: Headers) -> None:
        """The answer is there."""
        self.call = None
        self.response = response
        self.trailing = headers
        # Where the client cancels, the future is cancelled a moment before the call is abandoned.
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: RequestError, batch_id: str) -> None:
        """There is none."""
        self.error = error
        self.answer(0, b"", ((BATCH_HEADER, batch_id),) if batch_id else ())

    def abandon(self) -> None:
        """Nobody waits any more, unless it has ended."""
        if self.call is not None:
            self.call.abandon()
            self.call = None


class _Usual(NamedTuple):
    """A request of known pieces, of one part; its one raw tensor is the payload as it is."""

    own: "_GrpcModel"
    rows: int
    requested: GrpcRequestedOutputs


class Inference:
    """Inference over gRPC.

    Args:
        service: the models.
        clock: monotonic nanoseconds.
    """

    def __init__(self, service: Service, clock: Callable[[], int]) -> None:
        self._service = service
        self._clock = clock
        self._models: dict[ServedModel, _GrpcModel] = {}
        self._table = service.table
        self._heads: Heads[_Usual] = Heads()

    def start(self, data: bytes, remaining_s: float | None, ended: asyncio.Future[None]) -> Pending:
        """Answer a request.

        Args:
            data: a ModelInferRequest.
            remaining_s: how long the client will wait; None where it does not say.
            ended: becomes done, unless the request is abandoned first.
        """
        service = self._service
        service.engine.gateway.between_requests()
        accepted_ns = self._clock()
        pending = Pending(ended)
        error: RequestError
        try:
            own, parts, requested = self._read(data, pending)
            model = own.model
            service.expect_served(model)
            timeout_ns = model.spec.timeout_ns
            if requested.timeout_ns:
                timeout_ns = min(requested.timeout_ns, timeout_ns)
            if remaining_s is not None:
                timeout_ns = min(timeout_ns, int(remaining_s * 1e9))
                if timeout_ns <= 0:
                    raise DeadlineExceeded
            task = GrpcTask(own, requested, pending, accepted_ns, accepted_ns + timeout_ns)
            if parts:
                pending.call = service.send(task, parts)
            else:
                response, _ = task.render((), "")
                pending.answer(200, response, ())
            return pending
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it.
            error = failure.with_traceback(None)
        except Exception:
            log.exception("grpc frontend: a request failed")
            error = InternalError()
        pending.fail(error, "")
        return pending

    def _read(
        self, data: bytes, pending: Pending
    ) -> tuple["_GrpcModel", Parts, GrpcRequestedOutputs]:
        service = self._service
        service.keep_up()
        if service.table != self._table:
            # A name may stand for another model now.
            self._heads.clear()
            self._table = service.table
        recalled = self._heads.recall(data)
        if recalled is not None:
            (own, rows, requested), pending.id, tensor = recalled
            return own, (new_tuple(Part, (rows, tensor, 0)),), requested
        request = _parsed(data)
        pending.id = id_field(request.id)
        model = service.model(request.model_name, request.model_version)
        own = self._models.get(model) or self._own(model)
        parts, requested = own.read(request)
        if own.plain and len(parts) == 1 and requested.all_raw:
            (part,) = parts
            if not isinstance(part, LazyPart):
                self._heads.learn(data, part.payload, _Usual(own, part.rows, requested))
        return own, parts, requested

    def _own(self, model: ServedModel) -> "_GrpcModel":
        """What is needed of a model beyond what the service has; that of others that serve no
        longer is forgotten."""
        serving = {self._service.model(s.name, s.version) for s in self._service.specs}
        self._models = {known: own for known, own in self._models.items() if known in serving}
        own = self._models[model] = _GrpcModel(model, self._service.regions)
        return own


class GrpcTask(Task):
    """What is the same for all parts of a request over gRPC."""

    __slots__ = ("_own", "_pending", "_requested")

    def __init__(
        self,
        own: "_GrpcModel",
        requested: GrpcRequestedOutputs,
        pending: Pending,
        accepted_ns: int,
        deadline_ns: int,
    ) -> None:
        super().__init__(own.model, False, pending.answer, accepted_ns, deadline_ns)
        self._own = own
        self._pending = pending
        self._requested = requested

    def render(self, results: Results, batch_id: str) -> Answered:
        """As in `Task`."""
        fields = self._pending.id + batch_field(batch_id)
        return self._own.render(results, self._requested, fields), ()

    def fail(self, error: RequestError, batch_id: str) -> None:
        """As in `Task`."""
        self._pending.fail(error, batch_id)


class _GrpcModel:
    """A model, what reads requests to it, and what writes its answers.

    Attributes:
        plain: whether a raw tensor is the payload of its slot, whatever its bytes are.
    """

    def __init__(self, model: ServedModel, memory: ClientMemory) -> None:
        spec = model.spec
        self.model = model
        self.read = reader(spec, memory)
        self.render = GrpcAnswers(spec).render
        self.plain = (
            len(spec.inputs) == 1
            and spec.inputs[0].row_bytes is not None
            and spec.inputs[0].datatype.name != "BOOL"
        )


def _parsed(data: bytes) -> Any:
    try:
        return _Request.FromString(data)
    except DecodeError:
        raise InvalidRequest("the message is no ModelInferRequest") from None
