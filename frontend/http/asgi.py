"""ASGI's three parts as types, and an error as an answer to a request that has come that way."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ringbatch.frontend.codec.outcome import outcome
from ringbatch.shm.errors import RequestError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def refuse(send: Send, error: RequestError) -> None:
    """Answer that there is no answer, and why; nothing must have been sent yet."""
    status, body, headers = outcome(error)
    head = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    head.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
