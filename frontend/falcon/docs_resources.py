"""The description of the server, for programs and for people, on Falcon."""

import re
from typing import Final

import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.falcon.docs_page import POLICY, page
from ringbatch.frontend.falcon.openapi import document
from ringbatch.frontend.request.service import Service

_AUTHORITY: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_USUAL_ORIGIN: Final = "http://127.0.0.1:8080"


def add_routes(
    app: falcon.asgi.App[Request, Response],
    service: Service,
    version: str,
    *,
    shared_memory: bool,
    api_keys: bool = False,
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        version: of ringbatch.
        shared_memory: whether clients may share memory with the server.
        api_keys: whether clients must send a key.
    """
    description = Description(service, version, shared_memory=shared_memory, api_keys=api_keys)
    app.add_route("/openapi.json", OpenApi(description))
    app.add_route("/docs", Page(description))


class Description:
    """The document, made again if the models have changed."""

    def __init__(
        self, service: Service, version: str, *, shared_memory: bool, api_keys: bool
    ) -> None:
        self._service = service
        self._version = version
        self._shared_memory = shared_memory
        self._api_keys = api_keys
        self._made: tuple[int, dict[str, object]] = (0, {})

    def now(self) -> dict[str, object]:
        """Return it for the models that serve now, each in the version that the server chooses."""
        specs = [model.spec for model in self._service.models.values()]
        if self._made[0] != self._service.table_number:
            described = document(
                specs,
                self._version,
                shared_memory=self._shared_memory,
                model_control=self._service.model_control,
                api_keys=self._api_keys,
            )
            self._made = self._service.table_number, described
        return self._made[1]


class OpenApi:
    """The document."""

    def __init__(self, description: Description) -> None:
        self._description = description

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer every client with the same document."""
        resp.data = orjson.dumps(self._description.now())
        resp.content_type = falcon.MEDIA_JSON

    on_head = on_get


class Page:
    """The page."""

    def __init__(self, description: Description) -> None:
        self._description = description

    async def on_get(self, req: Request, resp: Response) -> None:
        """Answer with the page, whose examples go to the address that it came from."""
        plain = _AUTHORITY.fullmatch(req.netloc)
        origin = f"{req.scheme}://{req.netloc}" if plain else _USUAL_ORIGIN
        resp.data = page(self._description.now(), origin).encode()
        resp.content_type = falcon.MEDIA_HTML
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("X-Content-Type-Options", "nosniff")

    on_head = on_get
