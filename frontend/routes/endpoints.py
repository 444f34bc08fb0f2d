"""ringbatch's own endpoints as an ASGI application, for the user's application to serve.

    from ringbatch.frontend import endpoints

    app.mount("/", endpoints)       # below the application's middleware

If `own_paths` is "app", clients reach these endpoints in no other way.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ringbatch.frontend.http.asgi import App
from ringbatch.frontend.http.asgi_scope import ENDING
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.errors import StartupError

Message = MutableMapping[str, Any]
"""ASGI messages as Starlette types them, because its applications mount the endpoints."""
ENDINGS: Final = "ringbatch.endings"
"""Scope key of a list, which gets the ending of a request that ringbatch's endpoints answer."""


class Endpoints:
    """The application of ringbatch's own endpoints; there is one such object."""

    def __init__(self) -> None:
        self._app: App | None = None

    def bind(self, app: App | None) -> None:
        """Serve with this application from now on; None once this process is no frontend."""
        self._app = app

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Serve one ASGI request. Below a prefix its path is the rest.

        Raises:
            StartupError: this process is no frontend.
        """
        if self._app is None:
            raise StartupError(
                "this process is no frontend of an engine, so it has no endpoints; ringbatch "
                'serves an application in its frontends with app = "MODULE:NAME" in [server]'
            )
        own = _below(scope)
        outcomes: list[RequestOutcome] = scope.get(ENDINGS, [])

        async def recorded_send(message: dict[str, Any]) -> None:
            ending: RequestOutcome | None = own.get(ENDING)
            if ending is not None and not outcomes:
                outcomes.append(ending)
            await send(message)

        await self._app(own, receive, recorded_send)


def _below(scope: Message) -> dict[str, Any]:
    """Return the scope without the prefix below which an application has mounted the endpoints.

    Without a prefix it is the same object, because the connection notes there that it has refused
    a request.
    """
    root = scope.get("root_path", "")
    if not root or not scope["path"].startswith(f"{root}/"):
        assert isinstance(scope, dict), "as the connection has made it"
        return scope
    path, raw_path = scope["path"].removeprefix(root), scope["raw_path"].removeprefix(root.encode())
    return {**scope, "path": path, "raw_path": raw_path, "root_path": ""}


endpoints: Final = Endpoints()
"""The endpoints of this process."""
