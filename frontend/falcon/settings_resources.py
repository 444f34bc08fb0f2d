"""Triton's extensions for the settings of tracing and logging, on Falcon."""

from collections.abc import Callable, Mapping
from typing import Any

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.falcon.control_bodies import control_object
from ringbatch.frontend.falcon.v2_resources import ModelResource
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.server_settings import ServerSettings, expect_in_force


def add_routes(
    app: falcon.asgi.App[Request, Response],
    service: Service,
    settings: Callable[[], ServerSettings],
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        settings: those that hold.
    """
    app.add_route("/v2/trace/setting", Settings(lambda: settings().trace()))
    of_model = SettingsOfModel(service, lambda: settings().trace())
    app.add_route("/v2/models/{name}/trace/setting", of_model)
    app.add_route("/v2/logging", Settings(lambda: settings().log()))


class Settings:
    """Settings in force, read only.

    Args:
        in_force: by name.
    """

    def __init__(self, in_force: Callable[[], Mapping[str, Any]]) -> None:
        self._in_force = in_force

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with all settings."""
        _send(resp, self._in_force())

    on_head = on_get

    async def on_post(self, req: Request, resp: Response) -> None:
        """Answer with the settings if the request asks for the present ones."""
        in_force = self._in_force()
        expect_in_force(await control_object(req), in_force)
        _send(resp, in_force)


class SettingsOfModel(ModelResource):
    """The same for each model; 404 if it is not there.

    Args:
        service: the models.
        in_force: by name.
    """

    def __init__(self, service: Service, in_force: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(service)
        self._all = Settings(in_force)

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """Answer with all settings, as they are the same for each model."""
        self._spec(name, "")
        await self._all.on_get(req, resp)

    on_head = on_get

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Answer as for all models."""
        self._spec(name, "")
        await self._all.on_post(req, resp)


def _send(resp: Response, value: Mapping[str, Any]) -> None:
    resp.data = orjson.dumps(value)
    resp.content_type = falcon.MEDIA_JSON
