"""The Open Inference Protocol V2 on Falcon."""

import re
from typing import Any, Final

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.control_bodies import control_object
from ringbatch.frontend.falcon.exchange import BodySettings, exchange
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.model_control import control_model
from ringbatch.frontend.request.model_index import index_of
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.answer import LENGTH_HEADER
from ringbatch.frontend.v2.documents import model_metadata, readiness, server_metadata
from ringbatch.frontend.v2.model_configuration import model_configuration
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.control_socket import Action
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import Protocol

_STATISTICS: Final = "stats"
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def add_routes(
    app: falcon.asgi.App[Request, Response], service: Service, bodies: BodySettings
) -> None:
    """Add V2's endpoints but those for health.

    Args:
        app: to which.
        service: the models.
        bodies: limits and codings of request and answer bodies.
    """
    metadata = ServerMetadata(service)
    app.add_route("/v2", metadata)
    app.add_route("/v2/", metadata)
    app.add_route("/v2/models", ModelNames(service))
    app.add_route(f"/v2/models/{_STATISTICS}", AllStatistics(service))
    app.add_route("/v2/repository/index", Index(service))
    app.add_route("/v2/repository/models/{name}/load", ModelControl(service, "load"))
    app.add_route("/v2/repository/models/{name}/unload", ModelControl(service, "unload"))
    inferences = Inferences(service, bodies)
    for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        app.add_route(model, ModelMetadata(service))
        app.add_route(f"{model}/ready", ModelReadinessResource(service))
        app.add_route(f"{model}/stats", Statistics(service))
        app.add_route(f"{model}/config", ModelConfiguration(service))
        app.add_route(f"{model}/infer", inferences)


class ServerMetadata:
    """Metadata of the server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with the server's name, version and extensions."""
        document = server_metadata(
            installed_version(),
            shared_memory=self._service.regions.on,
            model_control=self._service.model_control,
        )
        _send(resp, document)

    on_head = on_get


class ModelNames:
    """The names of the models."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with the names of all models, ready or not."""
        _send(resp, {"models": list(self._service.models)})

    on_head = on_get


class AllStatistics:
    """Statistics of all models."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metadata = ModelMetadata(service)

    async def on_get(self, req: Request, resp: Response) -> None:
        """Answer with the statistics since the engine started.

        If a model has the name of this path's end, the path is that model's: the protocol has it
        so, and this resource is an extension.
        """
        service = self._service
        if _STATISTICS in service.models:
            await self._metadata.on_get(req, resp, _STATISTICS)
            return
        _send(resp, {"model_stats": service.statistics(service.specs)})

    on_head = on_get


class Index:
    """The models and their states."""

    answers_only: Final = True

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_post(self, req: Request, resp: Response) -> None:
        """Answer with all models, or only with the ready ones if the body asks for these."""
        only_ready = _wants_only_ready(await control_object(req))
        entries = index_of(self._service)
        _send(resp, [e for e in entries if not only_ready or e["state"] == "READY"])


class ModelControl:
    """Loading and unloading models.

    Args:
        service: the models.
        action: ``load`` or ``unload``.
    """

    def __init__(self, service: Service, action: Action) -> None:
        self._service = service
        self._action = action

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Answer in KServe's form once it is done; a load takes as long as the model does."""
        parameters = _load_parameters(await control_object(req))
        await control_model(self._service, self._action, name, parameters)
        _send(resp, {"name": name, self._action: True})


class ModelResource:
    """Base of the resources of one model.

    Args:
        service: the models.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def _spec(self, name: str, version: str) -> ModelSpec:
        """Return the model; raises `ModelNotFound` if there is none of that name and version."""
        if name not in self._service.models:
            raise self._service.not_found(name)
        return self._service.model(name, version).spec


class ModelMetadata(ModelResource):
    """Metadata of one model."""

    async def on_get(self, _req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer with the model's inputs and outputs."""
        _send(resp, model_metadata(self._spec(name, version), self._service.versions(name)))

    on_head = on_get


class ModelConfiguration(ModelResource):
    """Resource of a model's configuration in Triton's form."""

    async def on_get(self, _req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer in Triton's form."""
        _send(resp, model_configuration(self._spec(name, version)))

    on_head = on_get


class ModelReadinessResource(ModelResource):
    """Readiness of one model."""

    async def on_get(self, _req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer 200, or 503 with the reason."""
        self._spec(name, version)
        _send(resp, readiness(self._service.check(name, version)))

    on_head = on_get


class Statistics(ModelResource):
    """Statistics of one model."""

    async def on_get(self, _req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer with statistics since the engine started."""
        self._spec(name, version)
        specs = self._service.specs_of(name, version)
        _send(resp, {"model_stats": self._service.statistics(specs)})

    on_head = on_get


class Inferences(ModelResource):
    """Inferences of one model.

    Args:
        service: the models.
        bodies: limits and codings of request and answer bodies.
    """

    answers_only: Final = True

    def __init__(self, service: Service, bodies: BodySettings) -> None:
        super().__init__(service)
        self._bodies = bodies

    @staticmethod
    def infers(req: Request) -> Protocol:
        """Return the protocol of a request."""
        binary = req.get_header(LENGTH_HEADER) is not None
        return Protocol.V2_BINARY if binary else Protocol.V2

    async def on_post(self, req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer as the fast lane does, byte for byte."""
        wanted = address(name, version)
        json_bytes = _json_bytes(req.get_header(LENGTH_HEADER))
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        # The refusal comes before the body, so that the client need not send it.
        self._service.expect_known(name, version)

        def start(
            body: Body, reply: Reply, account: int, in_parts: InParts[Answer] | None
        ) -> RequestHandle | None:
            headers = req.scope["headers"]
            return self._service.infer(
                wanted, body, json_bytes, reply, timeout_ns, headers, account, in_parts
            )

        await exchange(req, resp, self._bodies, start)


def _json_bytes(header: str | None) -> int | None:
    if header is None:
        return None
    if not _LENGTH.fullmatch(header):
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {shown(header)}, not a number of bytes"
        )
    return int(header)


def _load_parameters(wanted: dict[str, Any]) -> dict[str, Any]:
    parameters = wanted.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequest('"parameters" of the request is to be an object, if it is there')
    return parameters


def _wants_only_ready(wanted: dict[str, Any]) -> bool:
    ready = wanted.get("ready")
    if ready is not None and not isinstance(ready, bool):
        raise InvalidRequest('"ready" of the request is to be true or false, if it is there')
    return bool(ready)


def _send(resp: Response, value: Any) -> None:
    resp.data = orjson.dumps(value)
    resp.content_type = falcon.MEDIA_JSON
