"""API keys over gRPC, in the metadata of a call."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import grpc

from ringbatch.frontend.grpc.messages import HEALTH_SERVICE, INFERENCE_SERVICE
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.errors import RequestError, Unauthenticated
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

OPEN_METHODS: Final = tuple(
    f"/{INFERENCE_SERVICE}/{method}" for method in ("ServerLive", "ServerReady")
)
"""What whoever watches the server asks for, without a key; gRPC's own health is open as well."""


class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without a key.

    Args:
        keys: of the server.
        refused: is called with every call that is refused.
    """

    def __init__(
        self, keys: ApiKeys, refused: Callable[[RequestError], object] = lambda _error: None
    ) -> None:
        self._keys = keys
        self._refused = refused

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """grpcio's call: who serves a call with these details."""
        method = handler_call_details.method
        if method in OPEN_METHODS or method.startswith(f"/{HEALTH_SERVICE}/"):
            return await continuation(handler_call_details)
        sent: dict[str, str] = {}
        for name, value in handler_call_details.invocation_metadata:
            # Twice the same name is nobody's key.
            sent[name] = "" if name in sent else value
        allowed = partial(self._keys.allow, sent.get(AUTHORIZATION), sent.get(KEY_HEADER))
        if not allowed():
            self._refused(Unauthenticated())
            return _REFUSAL
        handler = await continuation(handler_call_details)
        if handler is None or not handler.request_streaming:
            return handler
        return _while_allowed(handler, self._keys, allowed)


def _while_allowed(handler: Any, keys: ApiKeys, allowed: Callable[[], bool]) -> Any:
    """A stream may outlive the key that it began with."""

    async def serve(requests: Any, context: Any) -> None:
        await handler.stream_stream(requests, _Stream(context, keys, allowed))

    return grpc.stream_stream_rpc_method_handler(
        serve, handler.request_deserializer, handler.response_serializer
    )


class _Stream:
    """The context of a call that streams requests, each of which needs a key that is one still."""

    def __init__(self, context: Any, keys: ApiKeys, allowed: Callable[[], bool]) -> None:
        self._context = context
        self._keys = keys
        self._allowed = allowed
        self._changes = keys.changes

    async def read(self) -> Any:
        """The next request; ends the call where it may not be served."""
        request = await self._context.read()
        if self._changes != self._keys.changes:
            if not self._allowed():
                await _refuse(None, self._context)
            self._changes = self._keys.changes
        return request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


async def _refuse(_requests: Any, context: Any) -> None:
    code, text = grpc_status(Unauthenticated())
    await context.abort(next(c for c in grpc.StatusCode if c.value[0] == code), text)


# As a method that streams both ways, which begins without waiting for a message.
_REFUSAL: Final = grpc.stream_stream_rpc_method_handler(_refuse)
