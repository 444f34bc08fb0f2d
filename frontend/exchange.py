"""An inference request on Falcon, from its head to its answer, whatever its protocol."""

import asyncio
from collections.abc import Callable

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.anyhttp import EXCHANGES
from ringbatch.frontend.calls import Body, Call, Reply
from ringbatch.frontend.outcome import Headers, outcome
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge

Start = Callable[[Body, Reply], Call | None]
"""Takes a body and sends the request on its way, as `Service.predict` does."""


async def exchange(req: Request, resp: Response, max_request_bytes: int, start: Start) -> None:
    """Read the body, send it on its way, and write the answer that comes.

    Raises:
        RequestError, falcon.HTTPError: the body cannot be taken.
    """
    _expect_plain(req)
    body = await _read_body(req, max_request_bytes)
    waiting = Exchange()
    exchanges = req.scope.get(EXCHANGES, set())
    exchanges.add(waiting)
    try:
        waiting.call = start(body, waiting.reply)
        status, data, headers = await waiting.answer
    finally:
        exchanges.discard(waiting)
    resp.status = status
    resp.data = data
    for header, value in headers:
        resp.set_header(header, value)


class Exchange:
    """A prediction that a task waits for, and that its connection may end."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes, Headers]] = (
            asyncio.get_running_loop().create_future()
        )
        self.call: Call | None = None

    def reply(self, status: int, body: bytes, headers: Headers) -> None:
        """The service's call: the answer is there."""
        if not self.answer.done():
            self.answer.set_result((status, body, headers))

    def gone(self) -> None:
        """The connection's call: nobody waits any more."""
        if self.call is not None:
            self.call.abandon()
        # The task must end; what it sends goes nowhere.
        self.reply(*outcome(InvalidRequest("the client has gone")))


async def _read_body(req: Request, max_request_bytes: int) -> bytearray:
    length = req.content_length
    if length is None and req.get_header("Transfer-Encoding") is None:
        raise falcon.HTTPLengthRequired(
            description="the request has neither Content-Length nor a chunked body"
        )
    if length is not None and length > max_request_bytes:
        raise _too_large(f"{length} bytes", max_request_bytes)
    body = bytearray()
    async for chunk in req.stream:
        body += chunk
        if len(body) > max_request_bytes:
            raise _too_large(f"more than {max_request_bytes} bytes", max_request_bytes)
    if length is not None and len(body) < length:
        raise InvalidRequest(f"the body ended after {len(body)} of {length} bytes")
    return body


def _too_large(found: str, max_request_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body has {found}; at most {max_request_bytes} are accepted")


def _expect_plain(req: Request) -> None:
    if req.get_header("Upgrade") is not None:
        raise InvalidRequest("upgrades to another protocol are not supported")
    encoding = req.get_header("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise falcon.HTTPUnsupportedMediaType(
            description=f"Content-Encoding {encoding[:60]} is not supported; send it as identity",
            headers={"Accept-Encoding": "identity"},
        )
    if "cloudevents" in (req.content_type or "").lower():
        raise falcon.HTTPUnsupportedMediaType(
            description="CloudEvents are not supported; send application/json",
            headers={"Accept-Encoding": "identity"},
        )
