"""What Triton's extensions of V2 have and ringbatch has not, each refused in words.

A client's library has calls for all of it. Whoever makes one learns that it is not there, rather
than that nothing is at some path.
"""

from typing import Final, NoReturn

import falcon.asgi
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.falcon.v2_resources import OfModel
from ringbatch.frontend.request.service import Service

_CONFIG: Final = "model configurations are not supported; GET /v2/models/NAME describes a model"
_LOGGING: Final = "log settings are not supported; [server] log_level is set at the start"
_TRACE: Final = "tracing is not supported"


def add_routes(app: falcon.asgi.App[Request, Response], service: Service) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
    """
    config = UnservedOfModel(service, _CONFIG)
    app.add_route("/v2/models/{name}/config", config)
    app.add_route("/v2/models/{name}/versions/{version}/config", config)
    trace = UnservedSettings(_TRACE)
    app.add_route("/v2/trace/setting", trace)
    app.add_route("/v2/models/{name}/trace/setting", trace)
    app.add_route("/v2/logging", UnservedSettings(_LOGGING))


class UnservedAction:
    """What cannot be done.

    Args:
        words: what it is, and what there is instead.
    """

    def __init__(self, words: str) -> None:
        self._words = words

    async def on_post(self, _req: Request, _resp: Response, **_names: str) -> NoReturn:
        """501."""
        raise NotSupported(self._words)


class UnservedSettings(UnservedAction):
    """What can neither be done nor be seen."""

    async def on_get(self, _req: Request, _resp: Response, **_names: str) -> NoReturn:
        """501."""
        raise NotSupported(self._words)

    on_head = on_get


class UnservedOfModel(OfModel):
    """What cannot be seen of any model; 404 where the model is not there either."""

    def __init__(self, service: Service, words: str) -> None:
        super().__init__(service)
        self._words = words

    async def on_get(
        self, _req: Request, _resp: Response, name: str, version: str = ""
    ) -> NoReturn:
        """501."""
        self._spec(name, version)
        raise NotSupported(self._words)

    on_head = on_get
