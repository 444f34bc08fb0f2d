"""Bodies of requests that are no inference requests, which are small and JSON."""

from typing import Any

import orjson
from falcon.asgi import Request

from ringbatch.frontend.codec.limit_messages import MAX_CONTROL_BYTES
from ringbatch.frontend.falcon.exchange import expect_whole
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge
from ringbatch.shm.host.json_text import why_unreadable


async def control_body(req: Request) -> bytes:
    """Read the body of a request that is no inference request.

    Raises:
        RequestTooLarge: it is longer than such a body needs to be.
        InvalidRequest: the client has gone before its end.
    """
    body = bytearray()
    async for chunk in req.stream:
        body += chunk
        if len(body) > MAX_CONTROL_BYTES:
            raise RequestTooLarge(
                f"the body has more than {MAX_CONTROL_BYTES} bytes, which are accepted here"
            )
    expect_whole(req, len(body))
    return bytes(body)


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
