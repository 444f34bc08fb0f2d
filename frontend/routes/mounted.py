"""ringbatch's application and the user's own, side by side.

Paths under /v1/models and /v2 are ringbatch's. If ringbatch serves texts, so are those of
embeddings and reranking. All others are the user's. If `own_paths` is not "keys", all paths are the
user's except those of health.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal

from uvicorn.config import Config
from uvicorn.lifespan.on import LifespanOn

from ringbatch.frontend.codec.outcome import error_body
from ringbatch.frontend.http.asgi import App, Receive, Scope, Send
from ringbatch.frontend.http.asgi_scope import ENDING
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.routes.codec import InProcessCodec
from ringbatch.frontend.routes.endpoints import ENDINGS, endpoints
from ringbatch.frontend.routes.loading import imported
from ringbatch.frontend.routes.models import Abandonable, Settled, models
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import OPEN_PATHS, ApiKeys
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

OwnPaths = Literal["keys", "app", "off"]
"""Access to ringbatch's own paths: for clients with a key, for requests that the user's application
passes to `endpoints`, or for nobody."""

_SERVER: Final = "*"
_ROOTS: Final = ("/v1/models", "/v2")
_HEALTH: Final = OPEN_PATHS - {"/"}
_PREFLIGHT: Final = {b"origin", b"access-control-request-method"}
"""Headers of the question in which a browser sends no key (the Fetch standard's CORS-preflight)."""
_HEARTBEAT_S: Final = 1.0
_account: Final = ContextVar("account", default=NOBODY)
"""The account word of the request that the application serves."""


class Mounted:
    """Both applications, as one.

    Args:
        ours: ringbatch's.
        target: the name of the user's, see `imported`.
        service: the models.
        keys: API keys one of which a client must send, except with CORS' preflight; None to serve
            every client.
        own_paths: the access to ringbatch's own paths.
        accounts: of clients; by default all requests are nobody's.

    Raises:
        StartupError: the user's application cannot be imported.
    """

    def __init__(
        self,
        ours: App,
        target: str,
        service: Service,
        keys: ApiKeys | None = None,
        own_paths: OwnPaths = "keys",
        accounts: Accounts | None = None,
    ) -> None:
        self._ours = ours
        self._own_paths = own_paths
        self._target = target
        self._service = service
        self._keys = keys
        self._accounts = accounts or Accounts(on=False)
        codec = InProcessCodec(service)

        def started(
            name: str, inputs: Any, reply: Callable[[Settled], None], timeout_ns: int
        ) -> Abandonable | None:
            start, account = service.pipeline.start, _account.get()
            return start(codec, name, inputs, None, reply, timeout_ns, account)

        models.bind(started, lambda: tuple(service.models))
        endpoints.bind(_nothing if own_paths == "off" else ours)
        self._app = imported(target)
        config = Config(self._app, lifespan="auto", log_config=None, interface="asgi3")
        config.load()
        self._lifespan = LifespanOn(config)

    async def start(self, heartbeat: Callable[[], None]) -> None:
        """Have the application start, if it has a lifespan.

        Args:
            heartbeat: called once a second meanwhile.

        Raises:
            StartupError: it said that it cannot.
        """
        starting = asyncio.ensure_future(self._lifespan.startup())
        while not starting.done():
            heartbeat()
            await asyncio.wait([starting], timeout=_HEARTBEAT_S)
        starting.result()
        if self._lifespan.should_exit:
            raise StartupError(f"app {self._target}: its start failed, as said above")

    async def close(self) -> None:
        """Have the application stop, which may use models until then."""
        await self._lifespan.shutdown()
        models.unbind()
        endpoints.bind(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application: ringbatch's own, or the user's."""
        if self._is_ours(scope["path"]) or not self._allowed(scope):
            await self._ours(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    def _is_ours(self, path: str) -> bool:
        if self._own_paths != "keys":
            return path == _SERVER or path in _HEALTH
        of_texts = self._service.serves_texts_at(path)
        return is_ours(path) if of_texts is None else of_texts

    def _allowed(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request may go to the application: it has a key, or is a preflight.

        Ringbatch refuses a request without a key. But a browser sends none when it asks if a page
        of another site may ask, and the application decides that.
        """
        if self._keys is None:
            return True
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if scope["method"] == "OPTIONS" and headers.keys() >= _PREFLIGHT:
            return True
        authorization, key = headers.get(AUTHORIZATION.encode()), headers.get(KEY_HEADER.encode())
        return self._keys.allow(authorization, key)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcomes: list[RequestOutcome] = []

        async def recorded_send(message: dict[str, Any]) -> None:
            if outcomes:
                # The server of `endpoints` has counted the request already.
                scope[ENDING] = outcomes[0]
            await send(message)

        # The application may have a header of that name with words of its own.
        _account.set(self._accounts.of_scope(scope, lenient=True))
        # What an application keeps between its start and its requests, as its lifespan has it.
        scope["state"] = self._lifespan.state.copy()
        scope[ENDINGS] = outcomes
        await self._app(scope, receive, recorded_send)


async def _nothing(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer that ringbatch's own endpoints are off."""
    body = error_body('nothing is here: [server] own_paths is "off"')
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_ours(path: str) -> bool:
    """Return whether a path is ringbatch's beside an application."""
    return path == _SERVER or any(path == root or path.startswith(f"{root}/") for root in _ROOTS)
