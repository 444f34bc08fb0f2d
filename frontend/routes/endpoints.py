"""ringbatch's own endpoints as an ASGI application, for the user's application to serve.

    from ringbatch.frontend import endpoints

    app.mount("/", endpoints)       # below the application's middleware

Where `own_paths` is "app", nobody comes to them by another way.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ringbatch.frontend.http.asgi import App
from ringbatch.frontend.http.fallback import ENDING
from ringbatch.frontend.request.endings import Ending
from ringbatch.shm.errors import StartupError

Message = MutableMapping[str, Any]
"""As Starlette has it, in whose applications this is mounted."""
ENDINGS: Final = "ringbatch.endings"
"""In the scope, a list: how a request ended that ringbatch's endpoints answered."""


class Endpoints:
    """See the module; there is one such object."""

    def __init__(self) -> None:
        self._app: App | None = None

    def bind(self, app: App | None) -> None:
        """Serve by this application from now on; by none where there is no frontend any more."""
        self._app = app

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """One request, as ASGI has it. Below a prefix its path is the rest.

        Raises:
            StartupError: this process is no frontend.
        """
        if self._app is None:
            raise StartupError(
                "this process is no frontend of an engine, so it has no endpoints; ringbatch "
                'serves an application in its frontends with app = "MODULE:NAME" in [server]'
            )
        own = _below(scope)
        endings: list[Ending] = scope.get(ENDINGS, [])

        async def told(message: dict[str, Any]) -> None:
            ending: Ending | None = own.get(ENDING)
            if ending is not None and not endings:
                endings.append(ending)
            await send(message)

        await self._app(own, receive, told)


def _below(scope: Message) -> dict[str, Any]:
    """The scope as it is without the prefix that an application has mounted the endpoints at. The
    same object where there is none: the connection says in it that it has refused a request."""
    root = scope.get("root_path", "")
    if not root or not scope["path"].startswith(f"{root}/"):
        assert isinstance(scope, dict), "as the connection has made it"
        return scope
    path, raw_path = scope["path"].removeprefix(root), scope["raw_path"].removeprefix(root.encode())
    return {**scope, "path": path, "raw_path": raw_path, "root_path": ""}


endpoints: Final = Endpoints()
"""Of this process."""
