"""The description of the server, for programs and for people, on Falcon."""

import re
from collections.abc import Iterable
from typing import Final

import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.docs_page import POLICY, page
from ringbatch.frontend.openapi import document
from ringbatch.shm.manifest import ModelSpec

_AUTHORITY: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_USUAL_ORIGIN: Final = "http://127.0.0.1:8080"


def add_routes(
    app: falcon.asgi.App[Request, Response],
    models: Iterable[ModelSpec],
    version: str,
    *,
    shared_memory: bool,
    api_keys: bool = False,
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        models: that are served.
        version: of ringbatch.
        shared_memory: whether clients may share memory with the server.
        api_keys: whether clients must send a key.
    """
    described = document(models, version, shared_memory=shared_memory, api_keys=api_keys)
    app.add_route("/openapi.json", OpenApi(described))
    app.add_route("/docs", Page(described))


class OpenApi:
    """The document."""

    def __init__(self, described: dict[str, object]) -> None:
        self._text = orjson.dumps(described)

    async def on_get(self, _req: Request, resp: Response) -> None:
        """The same for everybody, as models do not change while a server runs."""
        resp.data = self._text
        resp.content_type = falcon.MEDIA_JSON

    on_head = on_get


class Page:
    """The page."""

    def __init__(self, described: dict[str, object]) -> None:
        self._described = described

    async def on_get(self, req: Request, resp: Response) -> None:
        """Its examples go to where the page came from."""
        plain = _AUTHORITY.fullmatch(req.netloc)
        origin = f"{req.scheme}://{req.netloc}" if plain else _USUAL_ORIGIN
        resp.data = page(self._described, origin).encode()
        resp.content_type = falcon.MEDIA_HTML
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("X-Content-Type-Options", "nosniff")

    on_head = on_get
