"""The services of gRPC: inference, health and reflection.

ModelInfer is the connection's own affair. All other messages are small, and each method is a
function from one to the other, or writes to its call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.grpc_codes import INVALID_ARGUMENT, NOT_FOUND
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.limit_messages import MAX_CONTROL_BYTES
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.grpc.call_context import CallContext, CallEnded, MethodHandler
from ringbatch.frontend.grpc.call_head import OPEN_METHODS
from ringbatch.frontend.grpc.health_watches import Watches
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.messages import (
    HEALTH_SERVICE,
    INFERENCE_SERVICE,
    SCHEMA,
    Message,
)
from ringbatch.frontend.grpc.messages import Method as Types
from ringbatch.frontend.grpc.reflection import REFLECTION_SERVICES, reflected
from ringbatch.frontend.grpc.shared_memory import Fields, MemoryControl
from ringbatch.frontend.grpc.status import GrpcStatus, grpc_status
from ringbatch.frontend.grpc.streams import Keys, Streams, still_allowed
from ringbatch.frontend.payloads.recorder import PayloadRecorder
from ringbatch.frontend.request.model_control import control_model
from ringbatch.frontend.request.model_index import index_of
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.documents import model_metadata, server_metadata
from ringbatch.frontend.v2.model_configuration import model_configuration
from ringbatch.frontend.v2.server_settings import ServerSettings, expect_in_force
from ringbatch.shm.errors import (
    Draining,
    ModelNotFound,
    ModelNotReady,
    RequestError,
)
from ringbatch.shm.host.control_socket import Action
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.model_spec import ModelSpec

log = logging.getLogger("ringbatch.frontend")

_OPEN_BYTES: Final = 1 << 12
"""The longest message to a method without a key: the name of a model, and little else."""
_Health: Final = SCHEMA.services[HEALTH_SERVICE]["Check"].response
_HealthList: Final = SCHEMA.services[HEALTH_SERVICE]["List"].response


class Control:
    """The methods that say what the server and its models are and how they are.

    Args:
        service: the models.
        settings: settings of tracing and logging.
    """

    def __init__(
        self, service: Service, settings: Callable[[], ServerSettings] = ServerSettings
    ) -> None:
        self._service = service
        self._settings = settings

    def methods(self) -> dict[str, Callable[[Message], Fields]]:
        """Return handlers by name, which take a request and return the response's fields.

        They raise `RequestError`.
        """
        return {
            "ServerLive": lambda _: {"live": True},
            "ServerReady": lambda _: {"ready": _holds(self._service.expect_ready)},
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "TraceSetting": self._trace_setting,
            "LogSettings": self._log_settings,
            "RepositoryIndex": self._index,
        }

    def changes(self) -> dict[str, Callable[[Message], Awaitable[Fields]]]:
        """Methods that take a while, as `methods` has the others."""
        return {
            "RepositoryModelLoad": partial(self._control, "load"),
            "RepositoryModelUnload": partial(self._control, "unload"),
        }

    def _server_metadata(self, _request: Message) -> Fields:
        shared_memory = self._service.regions.on
        return server_metadata(
            installed_version(),
            shared_memory=shared_memory,
            model_control=self._service.model_control,
        )

    def _model_metadata(self, request: Message) -> Fields:
        return model_metadata(self._spec(request), self._service.versions(request.name))

    def _config(self, request: Message) -> Fields:
        return {"config": model_configuration(self._spec(request))}

    def _spec(self, request: Message) -> ModelSpec:
        """Return the model that a request names; raises `ModelNotFound`."""
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

    def _trace_setting(self, request: Message) -> Fields:
        if request.model_name:
            self._service.model(request.model_name)
        in_force = self._settings().trace()
        wanted = {name: list(setting.value) for name, setting in request.settings.items()}
        expect_in_force(wanted, in_force)
        return {
            "settings": {
                name: {"value": value if isinstance(value, list) else [value]}
                for name, value in in_force.items()
            }
        }

    def _log_settings(self, request: Message) -> Fields:
        in_force = self._settings().log()
        wanted = {
            name: getattr(setting, setting.WhichOneof("parameter_choice") or "", None)
            for name, setting in request.settings.items()
        }
        expect_in_force(wanted, in_force)
        kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
        return {"settings": {name: {kinds[type(value)]: value} for name, value in in_force.items()}}

    async def _control(self, action: Action, request: Message) -> Fields:
        given = request.parameters.items()
        parameters = {
            name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
            for name, value in given
        }
        # KServe has the name where Triton has a repository.
        name = request.model_name or request.repository_name
        await control_model(self._service, action, name, parameters)
        return {}

    def _index(self, request: Message) -> Fields:
        entries = index_of(self._service)
        return {"models": [e for e in entries if e["state"] == "READY" or not request.ready]}


class HealthService:
    """gRPC's own health service.

    The whole server and its inference service are ready together, and each model is a service of
    its own.

    Args:
        service: the models.
        stopping: set once the server is to stop.
    """

    def __init__(self, service: Service, stopping: asyncio.Event) -> None:
        self._service = service
        self._stopping = stopping
        self._watches = Watches(self._status, stopping)

    async def check(self, request: Message, call: CallContext) -> None:
        """Check: how the service is."""
        status = self._status(request.service)
        if status == "SERVICE_UNKNOWN":
            text = f"there is no service {shown(request.service)}"
            raise CallEnded(GrpcStatus(NOT_FOUND, text))
        await call.write(_Health(status=status).SerializeToString())

    async def watch(self, request: Message, call: CallContext) -> None:
        """Watch: how it is, and then every change."""
        with self._watches.admitted(call.connection):
            last_sent = ""
            while True:
                status = self._status(request.service)
                if status != last_sent:
                    await call.write(_Health(status=status).SerializeToString())
                    last_sent = status
                if self._stopping.is_set():
                    return
                await self._watches.change(request.service, last_sent)

    async def list_all(self, _request: Message, call: CallContext) -> None:
        """List: the status of every service that `check` knows."""
        names = ("", INFERENCE_SERVICE, *self._service.models)
        statuses = {name: _Health(status=self._status(name)) for name in names}
        await call.write(_HealthList(statuses=statuses).SerializeToString())

    def _status(self, service: str) -> str:
        expect: Callable[[], object] = self._service.expect_ready
        if service not in ("", INFERENCE_SERVICE):
            if service not in self._service.models:
                return "SERVICE_UNKNOWN"
            expect = partial(self._service.check, service)
        ready = _holds(expect) and not self._stopping.is_set()
        return "SERVING" if ready else "NOT_SERVING"


async def reflect(request: Message, keys: Keys, call: CallContext) -> None:
    """ServerReflectionInfo: what the services of this server are.

    Args:
        request: the class of its requests.
        keys: who may still be served.
        call: the call.
    """
    try:
        async for data in still_allowed(call, keys):
            await call.write(reflected(request.FromString(data)).SerializeToString())
    except Draining as draining:
        raise CallEnded(grpc_status(draining)) from None


def methods_of(
    service: Service,
    inference: Inference,
    stopping: asyncio.Event,
    keys: Keys,
    recorder: Recorder,
    settings: Callable[[], ServerSettings] = ServerSettings,
    payloads: PayloadRecorder | None = None,
) -> dict[str, MethodHandler]:
    """Return all served methods by path."""
    control = Control(service, settings)
    streams = Streams(inference, keys, recorder, payloads)
    health = HealthService(service, stopping)
    memory = MemoryControl(service.regions)
    acts: dict[str, Callable[[Message], Fields | Awaitable[Fields]]]
    acts = {**control.methods(), **control.changes(), **memory.methods()}
    schema = SCHEMA.services[INFERENCE_SERVICE]
    ended = partial(inference.record_outside, infers=False)
    found = {
        f"/{INFERENCE_SERVICE}/{name}": _unary(
            schema[name].request, partial(_control, schema[name], act, ended)
        )
        for name, act in acts.items()
    }
    found[f"/{INFERENCE_SERVICE}/ModelInfer"] = MethodHandler(
        infers=True, streams_requests=False, serve=_never
    )
    stream = _streaming(streams.serve)
    found[f"/{INFERENCE_SERVICE}/ModelStreamInfer"] = stream._replace(max_bytes=None)
    serves = {"Check": health.check, "Watch": health.watch, "List": health.list_all}
    for name, method in SCHEMA.services[HEALTH_SERVICE].items():
        found[f"/{HEALTH_SERVICE}/{name}"] = _unary(method.request, serves[name])
    for path in OPEN_METHODS:
        found[path] = found[path]._replace(is_open=True, max_bytes=_OPEN_BYTES)
    for name in REFLECTION_SERVICES:
        request = SCHEMA.services[name]["ServerReflectionInfo"].request
        found[f"/{name}/ServerReflectionInfo"] = _streaming(partial(reflect, request, keys))
    return found


def _unary(
    request: Message, behavior: Callable[[Message, CallContext], Awaitable[None]]
) -> MethodHandler:
    async def serve(data: bytes | None, call: CallContext) -> GrpcStatus | None:
        async def behave() -> None:
            await behavior(_parsed(request, data or b""), call)

        return await _status_of(behave())

    return MethodHandler(
        infers=False, streams_requests=False, serve=serve, max_bytes=MAX_CONTROL_BYTES
    )


def _streaming(behavior: Callable[[CallContext], Awaitable[None]]) -> MethodHandler:
    async def serve(_data: bytes | None, call: CallContext) -> GrpcStatus | None:
        return await _status_of(behavior(call))

    return MethodHandler(
        infers=False, streams_requests=True, serve=serve, max_bytes=MAX_CONTROL_BYTES
    )


async def _never(_data: bytes | None, _call: CallContext) -> GrpcStatus | None:
    raise AssertionError("ModelInfer is answered by the connection")


async def _status_of(served: Awaitable[None]) -> GrpcStatus | None:
    """Return the status of a call that failed; None if it succeeded."""
    try:
        await served
    except CallEnded as ended:
        return ended.status
    except DecodeError:
        return GrpcStatus(INVALID_ARGUMENT, "the message is not of this method")
    except Exception:
        log.exception("grpc frontend: a call failed")
        return grpc_status(InternalError())
    return None


def _parsed(request: Message, data: bytes) -> Message:
    return request.FromString(data)


async def _control(
    method: Types,
    act: Callable[[Message], Fields | Awaitable[Fields]],
    ended: Callable[[RequestError | None], object],
    request: Message,
    call: CallContext,
) -> None:
    error: RequestError
    try:
        fields = act(request)
        response = method.response(**(fields if isinstance(fields, dict) else await fields))
        ended(None)
    except RequestError as failure:
        # Its traceback holds this frame, and this frame it.
        error = failure.with_traceback(None)
    except Exception:
        log.exception("grpc frontend: %s failed", method.request.DESCRIPTOR.name)
        error = InternalError()
    else:
        await call.write(response.SerializeToString())
        return
    ended(error)
    raise CallEnded(grpc_status(error))


def _holds(expectation: Callable[[], object]) -> bool:
    try:
        expectation()
    except (Draining, ModelNotFound, ModelNotReady):
        return False
    return True
