"""Triton's generate extension on Falcon: its routes."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import falcon.asgi
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.exchange import BodySettings, exchange
from ringbatch.frontend.falcon.v2_resources import ModelResource
from ringbatch.frontend.http.asgi_scope import QUERIED
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.generate import body_of
from ringbatch.shm.tallies import Protocol


def add_routes(
    app: falcon.asgi.App[Request, Response], service: Service, bodies: BodySettings
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        bodies: limits and codings of request and answer bodies.
    """
    for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        app.add_route(f"{model}/generate", Generation(service, bodies, events=False))
        app.add_route(f"{model}/generate_stream", EventGeneration(service, bodies, events=True))


class Generation(ModelResource):
    """Generation by one model.

    Args:
        service: the models.
        bodies: limits and codings of request and answer bodies.
        events: True to answer with events always; False for one object.
    """

    answers_only: Final = True

    def __init__(self, service: Service, bodies: BodySettings, *, events: bool) -> None:
        super().__init__(service)
        self._bodies = bodies
        self._events = events

    @staticmethod
    def infers(_req: Request) -> Protocol:
        """Return the protocol of a request."""
        return Protocol.V2

    async def on_post(self, req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer with one object, or an event for each part."""
        await self._answer(req, resp, name, version)

    async def _answer(
        self,
        req: Request,
        resp: Response,
        name: str,
        version: str,
        query: Callable[[], Body] | None = None,
    ) -> None:
        wanted = address(name, version)
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        # The refusal comes before the body, so that the client need not send it.
        self._service.expect_known(name, version)

        def start(
            body: Body, reply: Reply, account: int, in_parts: InParts[Answer] | None
        ) -> RequestHandle | None:
            headers = req.scope["headers"]
            return self._service.generate(
                wanted, body, reply, timeout_ns, headers, account, in_parts
            )

        await exchange(req, resp, self._bodies, start, events=self._events, query=query)


class EventGeneration(Generation):
    """The same for a browser's EventSource too, which can but GET."""

    async def on_get(self, req: Request, resp: Response, name: str, version: str = "") -> None:
        """Answer with an event for each part; the query has the members of the body."""
        if req.get_header("Last-Event-ID") is not None:
            resp.status = HTTPStatus.NO_CONTENT
            return

        def query() -> Body:
            body = body_of(parse_qsl(req.query_string, keep_blank_values=True), spec)
            if (keep := req.scope.get(QUERIED)) is not None:
                keep(body)
            return body

        spec = self._spec(name, version)
        await self._answer(req, resp, name, version, query)
