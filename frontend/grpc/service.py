"""The services of gRPC as grpc.aio calls them: inference, health and reflection.

Inference requests are taken and answered as bytes. All other messages are small, and each method
is a function from one to the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

import grpc

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import Headers, InternalError
from ringbatch.frontend.grpc.calls import Calls, Context
from ringbatch.frontend.grpc.inference import Inference, Pending
from ringbatch.frontend.grpc.messages import (
    HEALTH_SERVICE,
    INFERENCE_SERVICE,
    SCHEMA,
    Message,
    Method,
    inference,
)
from ringbatch.frontend.grpc.reflection import REFLECTION_SERVICES, reflected
from ringbatch.frontend.grpc.shared_memory import Fields, MemoryControl
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.grpc.watch import WatchedCall
from ringbatch.frontend.request.model_control import control_model, expect_no_override
from ringbatch.frontend.request.model_index import index_of
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.documents import (
    model_metadata,
    server_metadata,
)
from ringbatch.shm.errors import Draining, ModelNotFound, ModelNotReady, RequestError
from ringbatch.shm.host.control_socket import Action
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.model_spec import ModelSpec

log = logging.getLogger("ringbatch.frontend")

Behavior = Callable[[Any, Context], Awaitable[Any]]
"""A method as grpc.aio calls it; one that streams responses writes them to the context."""

WINDOW: Final = 64
"""Requests of one stream that are on their way at once; the next one is read when the first of
them is answered, and until then HTTP/2 makes the client wait."""
_LOOK_EVERY_S: Final = 1.0
"""How soon a watcher of health hears of a change."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_Response: Final = inference("ModelInferResponse")
_StreamResponse: Final = inference("ModelStreamInferResponse")
_Health: Final = SCHEMA.services[HEALTH_SERVICE]["Check"].response


class Control:
    """The methods that say what the server and its models are and how they are.

    Args:
        service: the models.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def methods(self) -> dict[str, Callable[[Message], Fields]]:
        """By name, what takes a request and returns the fields of the response; they raise
        `RequestError`."""
        return {
            "ServerLive": lambda _: {"live": True},
            "ServerReady": lambda _: {"ready": self.ready()},
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
        }

    def changes(self) -> dict[str, Callable[[Message], Awaitable[Fields]]]:
        """As `methods`, those that take a while."""
        return {
            "RepositoryModelLoad": partial(self._control, "load"),
            "RepositoryModelUnload": partial(self._control, "unload"),
        }

    def ready(self) -> bool:
        """Whether all models can predict now."""
        return _holds(self._service.expect_ready)

    def _server_metadata(self, _request: Message) -> Fields:
        shared_memory = self._service.regions.on
        return server_metadata(
            installed_version(),
            shared_memory=shared_memory,
            classification=False,
            model_control=self._service.model_control,
        )

    def _model_metadata(self, request: Message) -> Fields:
        return model_metadata(self._spec(request), self._service.versions(request.name))

    def _spec(self, request: Message) -> ModelSpec:
        """The model that a request names; raises `ModelNotFound`."""
        return self._service.model(request.name, request.version).spec

    def _model_ready(self, request: Message) -> Fields:
        # As Triton does; what there is not is not ready.
        return {"ready": _holds(lambda: self._service.check(request.name, request.version))}

    def _statistics(self, request: Message) -> Fields:
        specs = self._service.specs
        if request.name:
            self._spec(request)
            specs = self._service.specs_of(request.name, request.version)
        return {"model_stats": self._service.statistics(specs)}

    async def _control(self, action: Action, request: Message) -> Fields:
        expect_no_override(request.parameters)
        # KServe has the name where Triton has a repository.
        name = request.model_name or request.repository_name
        await control_model(self._service, action, name)
        return {}

    def _index(self, request: Message) -> Fields:
        entries = index_of(self._service)
        return {"models": [e for e in entries if e["state"] == "READY" or not request.ready]}


class Inferences:
    """The methods that infer.

    Args:
        inference: what answers requests.
        calls: those of the server.
        recorder: of the process.
    """

    def __init__(self, inference: Inference, calls: Calls, recorder: Recorder) -> None:
        self._inference = inference
        self._calls = calls
        self._recorder = recorder
        self._future = asyncio.get_running_loop().create_future

    async def one(self, data: bytes, context: Context) -> bytes:
        """ModelInfer, from bytes to bytes."""
        error: RequestError | None
        watched = WatchedCall(context, self._recorder)
        trailing: Headers = ()
        try:
            with self._calls:
                pending = self._inference.start(data, context.time_remaining(), self._future())
                try:
                    await pending.ended
                finally:
                    told = _told(watched, pending)
        except Draining as draining:
            told = watched.ended(self._inference.ended_outside(draining), len(data), 0)
            error = draining
        else:
            response, error, trailing = pending.outcome
        context.set_trailing_metadata((*trailing, *told))
        if error is not None:
            await _abort(context, error)
        return response

    async def many(self, _requests: Any, context: Context) -> None:
        """ModelStreamInfer: each request is answered as if it came alone, in their order."""
        pending: asyncio.Queue[Pending | None] = asyncio.Queue()
        watched = WatchedCall(context, self._recorder)
        context.set_trailing_metadata(watched.id_metadata)
        # The one that finds no room is under way as well.
        room = asyncio.Semaphore(WINDOW - 1)
        draining: Draining | None = None

        async def take(data: bytes) -> None:
            remaining_s = context.time_remaining()
            pending.put_nowait(self._inference.start(data, remaining_s, self._future()))
            await room.acquire()

        answering = asyncio.create_task(_answer(context, pending, room, watched))
        try:
            with self._calls:
                try:
                    await self._calls.read(context, take)
                except Draining as error:
                    draining = error
                pending.put_nowait(None)
                await answering
        except Draining as error:
            draining = error
        finally:
            answering.cancel()
            while not pending.empty():
                if (left := pending.get_nowait()) is not None:
                    _told(watched, left)
        if draining is not None:
            watched.ended(self._inference.ended_outside(draining), 0, 0)
            await _abort(context, draining)


async def _answer(
    context: Context,
    pending: "asyncio.Queue[Pending | None]",
    room: asyncio.Semaphore,
    watched: WatchedCall,
) -> None:
    while (first := await pending.get()) is not None:
        try:
            await first.ended
        finally:
            _told(watched, first)
        await context.write(_streamed(first))
        room.release()


def _told(watched: WatchedCall, pending: Pending) -> Headers:
    """What metadata say of a request that has ended, or of which nobody waits for the answer."""
    pending.abandon()
    ending = pending.ending
    assert ending is not None, "it has ended now"
    return watched.ended(ending, pending.bytes_in, pending.bytes_out)


def _streamed(pending: Pending) -> Message:
    response, error, _ = pending.outcome
    if error is not None:
        text = grpc_status(error).text
        return _StreamResponse(error_message=text, infer_response=_Response.FromString(pending.id))
    return _StreamResponse(infer_response=_Response.FromString(response))


class Health:
    """gRPC's own health service: the whole server and its inference service are ready together.

    Args:
        ready: whether all models can predict now.
        calls: those of the server.
    """

    def __init__(self, ready: Callable[[], bool], calls: Calls) -> None:
        self._ready = ready
        self._stopping = calls.stopping

    async def check(self, request: Message, context: Context) -> Message:
        """Check: how the service is."""
        status = self._status(request.service)
        if status == "SERVICE_UNKNOWN":
            text = f"there is no service {shown(request.service)}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        return _Health(status=status)

    async def watch(self, request: Message, context: Context) -> None:
        """Watch: how it is, and then every change."""
        told = ""
        while True:
            status = self._status(request.service)
            if status != told:
                await context.write(_Health(status=status))
                told = status
            if self._stopping.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._stopping.wait()

    def _status(self, service: str) -> str:
        if service not in ("", INFERENCE_SERVICE):
            return "SERVICE_UNKNOWN"
        ready = self._ready() and not self._stopping.is_set()
        return "SERVING" if ready else "NOT_SERVING"


class Reflection:
    """gRPC's own reflection service.

    Args:
        calls: those of the server.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def info(self, _requests: Any, context: Context) -> None:
        """ServerReflectionInfo: what the services of this server are."""

        async def take(request: Message) -> None:
            await context.write(reflected(request))

        try:
            await self._calls.read(context, take)
        except Draining as error:
            draining = error
        else:
            return
        await _abort(context, draining)


def handlers(service: Service, inference: Inference, calls: Calls, recorder: Recorder) -> list[Any]:
    """Everything that is served, for `grpc.aio.Server.add_generic_rpc_handlers`."""
    control = Control(service)
    inferences = Inferences(inference, calls, recorder)
    health = Health(control.ready, calls)
    methods = SCHEMA.services[INFERENCE_SERVICE]
    acts: dict[str, Callable[[Message], Fields | Awaitable[Fields]]]
    memory = MemoryControl(service.regions)
    acts = {**control.methods(), **control.changes(), **memory.methods()}
    told = inference.ended_outside
    own = {
        name: _handler(methods[name], _control(methods[name], act, told))
        for name, act in acts.items()
    }
    own["ModelInfer"] = grpc.unary_unary_rpc_method_handler(inferences.one)
    own["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        inferences.many, None, _StreamResponse.SerializeToString
    )
    found = {
        INFERENCE_SERVICE: own,
        HEALTH_SERVICE: _handlers(HEALTH_SERVICE, Check=health.check, Watch=health.watch),
    }
    reflection = Reflection(calls)
    for name in REFLECTION_SERVICES:
        found[name] = _handlers(name, ServerReflectionInfo=reflection.info)
    return [grpc.method_handlers_generic_handler(name, own) for name, own in found.items()]


def _handlers(service: str, **behaviors: Behavior) -> dict[str, Any]:
    methods = SCHEMA.services[service]
    return {name: _handler(methods[name], behavior) for name, behavior in behaviors.items()}


def _handler(method: Method, behavior: Behavior) -> Any:
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make = kinds[method.streams_requests, method.streams_responses]
    return make(behavior, method.request.FromString, method.response.SerializeToString)


def _control(
    method: Method,
    act: Callable[[Message], Fields | Awaitable[Fields]],
    ended: Callable[[RequestError | None], object],
) -> Behavior:
    async def answer(request: Message, context: Context) -> Message:
        error: RequestError
        try:
            fields = act(request)
            response = method.response(**(fields if isinstance(fields, dict) else await fields))
            ended(None)
            return response
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it.
            error = failure.with_traceback(None)
        except Exception:
            log.exception("grpc frontend: %s failed", method.request.DESCRIPTOR.name)
            error = InternalError()
        ended(error)
        return await _abort(context, error)

    return answer


async def _abort(context: Context, error: RequestError) -> NoReturn:
    code, text = grpc_status(error)
    await context.abort(_CODES[code], text)
    raise AssertionError("to abort a call is to raise")


def _holds(expectation: Callable[[], object]) -> bool:
    try:
        expectation()
    except (Draining, ModelNotFound, ModelNotReady):
        return False
    return True
