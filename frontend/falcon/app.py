"""Falcon application with every endpoint, for requests that the fast lane does not take."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.codec.model_list import as_openai, model_list
from ringbatch.frontend.codec.outcome import Answer, InternalError
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon import (
    completion_resources,
    docs_resources,
    generate_resources,
    memory_resources,
    settings_resources,
    text_resources,
    v2_resources,
)
from ringbatch.frontend.falcon.authentication import Authentication, OwnPagesOnly
from ringbatch.frontend.falcon.cross_origin import CrossOrigin
from ringbatch.frontend.falcon.exchange import BodySettings, exchange
from ringbatch.frontend.falcon.outcome_counts import Counting
from ringbatch.frontend.falcon.path_hints import elsewhere, posted_elsewhere
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.router import Router
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.cors import SharedWith
from ringbatch.frontend.texts.paths import errors_at
from ringbatch.frontend.v2.documents import readiness
from ringbatch.frontend.v2.server_settings import ServerSettings
from ringbatch.shm.errors import ModelNotFound, RequestError
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.tallies import Protocol

log = logging.getLogger("ringbatch.frontend")

_PREDICTIONS: Final = re.compile(r"/.*:predict\Z")
_SERVER: Final = re.compile(r"\*\Z")
_READABLE: Final = ["GET", "HEAD", "OPTIONS"]


def create_app(
    service: Service,
    max_request_bytes: int,
    *,
    compress_answers: bool = False,
    keys: ApiKeys | None = None,
    budget: BodyBudget | None = None,
    router: Router | None = None,
    settings: Callable[[], ServerSettings] = ServerSettings,
    cors_origins: Sequence[str] = (),
    accounts: Accounts | None = None,
) -> falcon.asgi.App[Request, Response]:
    """Return the ASGI application.

    Args:
        service: the models.
        max_request_bytes: longer bodies are refused.
        compress_answers: True to compress large answers for clients that accept it.
        keys: those of which a client must send one; None to serve every client.
        budget: for the bodies that the process gathers; by default for those here alone.
        router: new; for callers that ask it afterwards.
        settings: of tracing and logging.
        cors_origins: origins whose pages may read answers.
        accounts: of clients; by default all requests are nobody's.
    """
    bodies = BodySettings(
        max_request_bytes,
        compress_answers,
        budget=budget or BodyBudget.of(max_request_bytes),
        last=service.last_ending,
        accounts=accounts or Accounts(on=False),
    )
    app = falcon.asgi.App(media_type=falcon.MEDIA_JSON, router=router or Router())
    app.add_middleware(Counting(service))
    shared_with = SharedWith(cors_origins)
    if shared_with:
        app.add_middleware(CrossOrigin(shared_with))
    if keys is not None:
        app.add_middleware(Authentication(keys))
    app.add_middleware(OwnPagesOnly(shared_with, by_key=keys is not None))
    app.set_error_serializer(_serialize)
    app.add_error_handler(Exception, _handle_defect)
    app.add_error_handler(RequestError, _handle_request_error)
    app.add_sink(about_server, _SERVER)
    app.add_route("/", AliveResource())
    app.add_route("/v2/health/live", LivenessResource())
    app.add_route("/v2/health/ready", ReadinessResource(service))
    app.add_route("/v1/models", ModelList(service))
    app.add_route("/v1/models/{name}", ModelStateResource(service))
    app.add_route("/v1/models/{name}/versions/{version}", ModelStateResource(service))
    predictions = PredictionResource(service, bodies)
    app.add_route("/v1/models/{name}:predict", predictions)
    app.add_route("/v1/models/{name}/versions/{version}:predict", predictions)
    if service.origins.any_path:
        app.add_sink(predictions.of_any_path, _PREDICTIONS)
    app.add_route("/v1/models/{name}:explain", Explanations(service))
    v2_resources.add_routes(app, service, bodies)
    generate_resources.add_routes(app, service, bodies)
    memory_resources.add_routes(app, service.regions)
    settings_resources.add_routes(app, service, settings)
    version, shared_memory = installed_version(), service.regions.on
    text_resources.add_routes(app, service, bodies, version)
    completion_resources.add_routes(app, service, bodies)
    docs_resources.add_routes(
        app, service, version, shared_memory=shared_memory, api_keys=keys is not None
    )
    return app


async def about_server(req: Request, resp: Response | None, **_parameters: Any) -> None:
    """Answer ``OPTIONS *`` with all methods of the server, for any path."""
    assert resp is not None, f"there is one where there is no websocket, as for {req.path}"
    resp.status = falcon.HTTP_204
    resp.set_header("Allow", ", ".join((*_READABLE, "POST")))


class AliveResource:
    """Liveness of the process, in V1's form."""

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer in KServe's form."""
        _send(resp, {"status": "alive"})

    on_head = on_get


class LivenessResource:
    """Liveness of the process, in V2's form."""

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer in the Open Inference Protocol's form."""
        _send(resp, {"live": True})

    on_head = on_get


class ReadinessResource:
    """Readiness of all models."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer 200 if all models are ready; 503 names the first one that is not."""
        self._service.expect_ready()
        _send(resp, {"ready": True})

    on_head = on_get


class ModelList:
    """The models, for KServe's clients and OpenAI's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with the names of all models, ready or not."""
        _send(resp, model_list(self._service.models, self._service.since_s))

    on_head = on_get


class ModelStateResource:
    """V1 resource of a model: answers whether it can predict."""

    refuses: Final = ("POST",)

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_get(self, _req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer whether the model can predict."""
        spec = self._service.check(name, version)
        _send(resp, readiness(spec) | as_openai(spec.name, self._service.since_s))

    on_head = on_get

    async def on_post(self, _req: Request, _resp: Response, name: str, version: str = "") -> None:
        """Refuse a POST to a model itself: only its verbs take one."""
        model, colon, verb = address(name, version).rpartition(":")
        if colon and not model:
            self._service.check(model)
        if colon:
            raise ModelNotFound(f'model "{model[:128]}" has no verb "{verb[:128]}"; use :predict')
        raise falcon.HTTPMethodNotAllowed(_READABLE)


class Explanations:
    """Explanations, which no model of ringbatch gives."""

    answers_only: Final = True

    def __init__(self, service: Service) -> None:
        self._service = service

    async def on_post(self, _req: Request, _resp: Response, name: str) -> NoReturn:
        """Answer 501, or 404 for an unknown model."""
        self._service.check(name)
        raise falcon.HTTPNotImplemented(description="explanations are not supported")


class PredictionResource:
    """Predictions of one model."""

    answers_only: Final = True

    def __init__(self, service: Service, bodies: BodySettings) -> None:
        self._service = service
        self._bodies = bodies

    @staticmethod
    def infers(_req: Request) -> Protocol:
        """Return the protocol of a request."""
        return Protocol.V1

    async def on_post(
        self, req: Request, resp: Response, name: str = "", version: str = ""
    ) -> None:
        """Answer as the fast lane does, byte for byte."""
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        wanted = address(name, version)
        # The refusal comes before the body, so that the client need not send it.
        self._service.expect_known(name, version)
        origin = self._origin(req, wanted)

        def start(
            body: Body, reply: Reply, account: int, in_parts: InParts[Answer] | None
        ) -> RequestHandle | None:
            return self._service.predict(wanted, body, reply, timeout_ns, origin, account, in_parts)

        await exchange(req, resp, self._bodies, start)

    async def of_any_path(self, req: Request, resp: Response | None, **_parameters: Any) -> None:
        """Predict for a path of any model."""
        assert resp is not None, "there is one where there is no websocket"
        await self.on_post(req, resp)

    def _origin(self, req: Request, name: str) -> RawHeaders:
        headers: dict[bytes, list[bytes]] = {}
        for header, value in req.scope["headers"]:
            headers.setdefault(header, []).append(value)
        target, query = req.scope["raw_path"], req.scope["query_string"]
        found = self._service.origins.of(name, target + b"?" * bool(query) + query, headers)
        return req.scope["headers"] if found is None else found


def _send(resp: Response, value: dict[str, Any]) -> None:
    resp.data = orjson.dumps(value)
    resp.content_type = falcon.MEDIA_JSON


def _serialize(req: Request, resp: Response, error: falcon.HTTPError) -> None:
    words = _words(req, resp, error)
    resp.data = errors_at(req.path).body(error.status_code, words)
    resp.content_type = falcon.MEDIA_JSON


def _words(req: Request, resp: Response, error: falcon.HTTPError) -> str:
    if error.description:
        return error.description
    if isinstance(error, falcon.HTTPMethodNotAllowed):
        hint = posted_elsewhere(req.path) if req.method == "POST" else ""
        return f"{req.method} is not allowed here; allowed: {resp.get_header('Allow')}{hint}"
    if isinstance(error, falcon.HTTPNotFound):
        path = req.path if len(req.path) <= 128 else f"{req.path[:128]}..."
        return f'nothing is at "{path}"{elsewhere(req.path)}'
    return error.title or "error"


async def _handle_request_error(
    req: Request, resp: Response | None, error: Exception, _params: dict[str, Any]
) -> None:
    assert resp is not None
    assert isinstance(error, RequestError)
    resp.status, resp.data, headers = errors_at(req.path).refused(error)
    for header, value in headers:
        resp.set_header(header, value)


async def _handle_defect(
    req: Request, resp: Response | None, error: Exception, params: dict[str, Any]
) -> None:
    log.error("frontend: %s %s failed", req.method, req.path[:128], exc_info=error)
    await _handle_request_error(req, resp, InternalError(), params)
