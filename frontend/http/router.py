"""Falcon router with one list of allowed methods for each path.

The answers to OPTIONS and the refusals of other methods both show it. Falcon itself has two lists.
It leaves OPTIONS out of one. In the other it shows methods that a resource takes only to refuse
them in better words.
"""

from typing import Any, Final, NoReturn

import falcon
from falcon.asgi import Request, Response
from falcon.routing import CompiledRouter

_SHOWN: Final = "OPTIONS"
_UNSHOWN: Final = ("WEBSOCKET",)


class Router(CompiledRouter):
    """Router with one list of allowed methods for each path.

    A resource names in `refuses` the methods that it takes only to refuse them.
    """

    def map_http_methods(self, resource: object, **kwargs: Any) -> Any:
        """Return a resource's responders by method, with those that it lacks; Falcon's call."""
        found: dict[str, Any] = super().map_http_methods(resource, **kwargs)
        taken = sorted({*found}.difference(getattr(resource, "refuses", ())))
        allowed = [*taken, _SHOWN]
        for method in falcon.COMBINED_METHODS:
            if method not in found and method not in _UNSHOWN:
                found[method] = _shows(allowed) if method == _SHOWN else _refuses(allowed)
        return found


def _shows(allowed: list[str]) -> Any:
    async def on_options(_req: Request, resp: Response, **_parameters: Any) -> None:
        resp.set_header("Allow", ", ".join(allowed))
        resp.content_length = 0

    return on_options


def _refuses(allowed: list[str]) -> Any:
    async def on_other(_req: Request, _resp: Response, **_parameters: Any) -> NoReturn:
        raise falcon.HTTPMethodNotAllowed(allowed)

    return on_other
