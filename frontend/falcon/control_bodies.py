"""Bodies of requests that are no inference requests, which are small and JSON."""

from typing import Any

import orjson
from falcon.asgi import Request

from ringbatch.frontend.codec.limit_messages import MAX_CONTROL_BYTES
from ringbatch.frontend.falcon.exchange import body_coding, expect_whole
from ringbatch.frontend.http.content_coding import Expander
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge
from ringbatch.shm.host.json_text import why_unreadable


async def control_body(req: Request) -> bytes:
    """Read the body of a request that is no inference request, and expand it.

    Raises:
        RequestTooLarge: it is longer than such a body needs to be.
        InvalidRequest: the client has gone before its end, or it does not follow its coding.
        falcon.HTTPError: its coding is unknown.
    """
    coding = body_coding(req)
    body = bytearray()
    async for chunk in req.stream:
        body += chunk
        if len(body) > MAX_CONTROL_BYTES:
            raise _too_large()
    expect_whole(req, len(body))
    return bytes(body) if coding is None else _expanded(body, coding)


def _expanded(body: bytearray, coding: str) -> bytes:
    expander = Expander(coding, MAX_CONTROL_BYTES)
    try:
        for _ in expander.steps(bytes(body)):
            pass
    except RequestTooLarge:
        raise _too_large() from None
    return bytes(expander.finish())


def _too_large() -> RequestTooLarge:
    return RequestTooLarge(
        f"the body has more than {MAX_CONTROL_BYTES} bytes, which are accepted here"
    )


async def control_object(req: Request) -> dict[str, Any]:
    """Read the object in such a body; empty without a body.

    Raises:
        RequestTooLarge: as `control_body`.
        InvalidRequest: it is no JSON object.
    """
    body = await control_body(req)
    if not body.strip():
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request is no JSON: {why_unreadable(body, error)}") from None
    if not isinstance(found, dict):
        raise InvalidRequest("the request is to be an object, if it has a body")
    return found
