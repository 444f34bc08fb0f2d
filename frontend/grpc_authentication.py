"""API keys over gRPC, in the metadata of a call."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from ringbatch.frontend.api_keys import ApiKeys
from ringbatch.frontend.grpc_messages import HEALTH_SERVICE, INFERENCE_SERVICE
from ringbatch.frontend.grpc_status import grpc_status
from ringbatch.shm.errors import Unauthenticated
from ringbatch.shm.key_headers import AUTHORIZATION, KEY_HEADER

OPEN_METHODS: Final = tuple(
    f"/{INFERENCE_SERVICE}/{method}" for method in ("ServerLive", "ServerReady")
)
"""What whoever watches the server asks for, without a key; gRPC's own health is open as well."""


class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without a key.

    Args:
        keys: of the server.
    """

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

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
        if self._keys.allow(sent.get(AUTHORIZATION), sent.get(KEY_HEADER)):
            return await continuation(handler_call_details)
        return _REFUSAL


async def _refuse(_requests: Any, context: Any) -> None:
    code, text = grpc_status(Unauthenticated())
    await context.abort(next(c for c in grpc.StatusCode if c.value[0] == code), text)


# As a method that streams both ways, which begins without waiting for a message.
_REFUSAL: Final = grpc.stream_stream_rpc_method_handler(_refuse)
