"""Inference requests of all protocols on Falcon, from head to answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.asked_events import EventsAsked
from ringbatch.frontend.codec.event_stream import is_text, wants_events
from ringbatch.frontend.codec.limit_messages import body_too_large
from ringbatch.frontend.codec.outcome import Answer, Headers, outcome
from ringbatch.frontend.codec.part_limits import limits_in
from ringbatch.frontend.falcon.streaming import EventStream, begin_events
from ringbatch.frontend.http.asgi_scope import (
    ENDING,
    EXCHANGES,
    FORMS,
    IN_PARTS,
    OUTLET,
    WHOLE,
    Exchanges,
)
from ringbatch.frontend.http.body_budget import BodyBudget, Holding
from ringbatch.frontend.http.content_coding import (
    CODINGS,
    MIN_ENCODED_BYTES,
    SLOW_BYTES,
    CodingNotSupported,
    Expander,
    acceptance,
    coding_headers,
    coding_of,
    encoded,
)
from ringbatch.frontend.http.expanding import expand
from ringbatch.frontend.http.parts_timing import TIMING
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.shm.errors import InvalidRequest, RequestTooLarge
from ringbatch.shm.host.background_tasks import in_thread

Start = Callable[[Body, Reply, int, InParts[Answer] | None], RequestHandle | None]
"""Takes a body, an account word and the place for parts, if the client wants some. It sends the
request on its way, as `Service.predict` does."""
_TAKEN = {"Accept-Encoding": ", ".join(CODINGS)}


@dataclass(frozen=True, slots=True)
class BodySettings:
    """Limits and forms of the bodies of requests and answers.

    Attributes:
        max_request_bytes: longer bodies are refused, also those that are longer once expanded.
        compress_answers: True to compress large answers for clients that accept it.
        budget: for all bodies that are being read.
        last: returns the end of the request that ended last.
        accounts: of clients.
    """

    max_request_bytes: int
    compress_answers: bool = False
    budget: BodyBudget = field(kw_only=True)
    last: Callable[[], RequestOutcome] = field(kw_only=True)
    accounts: Accounts = field(kw_only=True)


async def exchange(
    req: Request,
    resp: Response,
    bodies: BodySettings,
    start: Start,
    *,
    events: bool | None = None,
    whole_is_event: bool = True,
    query: Callable[[], Body] | None = None,
) -> None:
    """Read the body, send it on its way, and write the answer that comes.

    Args:
        req, resp: of the exchange.
        bodies: limits and codings of request and answer bodies.
        start: sends the request on its way.
        events: whether the answer is to be events; None if the request's header says so.
        whole_is_event: whether an answer that comes whole is the only event; False to write it as
            any other answer.
        query: returns the body of a request by GET, of which a browser's EventSource reads the
            events.

    Raises:
        RequestError, falcon.HTTPError: the body cannot be taken.
    """
    _expect_served(req)
    account = bodies.accounts.of_scope(req.scope)
    if query is not None:
        body = query()
    else:
        with bodies.budget.holding() as holding:
            body = await _read_body(req, bodies.max_request_bytes, holding)
    starts = partial(start, body)
    in_parts = partial(
        _exchange_in_parts, req, resp, bodies, starts, account, whole_is_event, query is not None
    )
    if wants_events(req.get_header("Accept")) if events is None else events:
        await in_parts()
        return
    waiting = AwaitedPrediction(bodies.last)
    exchanges = req.scope.get(EXCHANGES, set())
    exchanges.add(waiting)
    whole: Answer | None = None
    try:
        waiting.call = start(body, waiting.reply, account, None)
        # From here on the pipeline sees its end.
        req.context.counted = True
        whole = await waiting.answer
    except EventsAsked:
        pass
    finally:
        exchanges.discard(waiting)
        # The call holds the reply, which is the exchange's: only the garbage collector would part
        # them, and memory of the client's would stay open until then.
        waiting.call = None
        req.scope[ENDING] = waiting.ending
    if whole is None:
        await in_parts()
        return
    status, data, headers = whole
    if bodies.compress_answers and status == 200:
        data, headers = await _accepted(req, data, headers)
    resp.status = status
    resp.data = data
    for header, value in headers:
        resp.set_header(header, value)


async def _exchange_in_parts(
    req: Request,
    resp: Response,
    bodies: BodySettings,
    start: Callable[[Reply, int, InParts[Answer]], RequestHandle | None],
    account: int,
    whole_is_event: bool,
    event_source: bool,
) -> None:
    """Write the answer as events, but for an error before the first part, and for binary data."""
    exchanges: Exchanges = req.scope.get(EXCHANGES, Exchanges())
    stream = EventStream(
        bodies.last,
        limits_in(req.get_header),
        exchanges.stalled_s,
        event_source=event_source,
        timing=req.scope.get(TIMING),
        outlet=req.scope.get(OUTLET),
        forms=req.scope.get(FORMS, {}),
    )
    exchanges.add(stream)

    def end() -> None:
        exchanges.discard(stream)
        stream.call = None
        req.scope[ENDING] = stream.ending

    def close() -> None:
        stream.close()
        end()

    whole: Answer | None = None
    try:
        stream.call = start(stream.reply, account, stream.in_parts)
        req.context.counted = True
        whole = await stream.begin()
    except BaseException:
        end()
        raise
    if whole is not None and not (whole_is_event and whole[0] == 200 and is_text(whole[2])):
        end()
        resp.status, data, headers = whole
        if bodies.compress_answers and whole[0] == 200:
            data, headers = await _accepted(req, data, headers)
        resp.data = data
        for header, value in headers:
            resp.set_header(header, value)
        return
    req.scope[IN_PARTS] = close
    begin_events(resp, stream, close)


class AwaitedPrediction:
    """A prediction that a task waits for, and that its connection may end."""

    def __init__(self, last: Callable[[], RequestOutcome]) -> None:
        self._last = last
        self.ending: RequestOutcome | None = None
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.call: RequestHandle | None = None

    def reply(self, answer: Answer) -> None:
        """Take the answer; called by the service."""
        if not self.answer.done():
            self.ending = self._last()
            self.answer.set_result(answer)

    def gone(self) -> None:
        """Stop waiting, as the client has gone; called by the connection."""
        if self.call is not None:
            self.call.abandon()
        # The task must end; what it sends goes nowhere.
        self.reply(outcome(InvalidRequest("the client has gone")))


async def _read_body(req: Request, max_request_bytes: int, holding: Holding) -> bytearray:
    length = req.content_length
    framed = req.scope["http_version"] == "2" or req.get_header("Transfer-Encoding") is not None
    if length is None and not framed:
        raise falcon.HTTPLengthRequired(
            description="the request has neither Content-Length nor a chunked body"
        )
    if length is not None and length > max_request_bytes:
        raise _too_large(f"{length} bytes", max_request_bytes)
    coding = body_coding(req)
    expander = None if coding is None else Expander(coding, max_request_bytes)
    body = bytearray()
    received = 0
    async for chunk in req.stream:
        received += len(chunk)
        if received > max_request_bytes:
            raise _too_large(f"more than {max_request_bytes} bytes", max_request_bytes)
        if expander is None:
            body += chunk
            holding.grow(len(body))
        else:
            await expand(expander, chunk, holding)
    expect_whole(req, received)
    return body if expander is None else expander.finish()


def expect_whole(req: Request, received: int) -> None:
    """Check that so many bytes are all of a request's body.

    Falcon takes the end of a connection for the end of the body.

    Raises:
        InvalidRequest: more was declared.
    """
    length = req.content_length
    if length is not None and received < length:
        req.context.cut_off = True
        raise InvalidRequest(f"the body ended after {received} of {length} bytes")
    if not req.scope.get(WHOLE, True):
        req.context.cut_off = True
        raise InvalidRequest(f"the body ended after {received} bytes, before its last chunk")


def _too_large(found: str, max_request_bytes: int) -> RequestTooLarge:
    return body_too_large(f"the body has {found}", max_request_bytes)


def body_coding(req: Request) -> str | None:
    """Return the coding of a request's body; None for a plain one.

    Raises:
        falcon.HTTPError: it is not among `CODINGS`.
    """
    try:
        return coding_of(req.get_header("Content-Encoding") or "")
    except CodingNotSupported as error:
        raise falcon.HTTPUnsupportedMediaType(description=str(error), headers=_TAKEN) from None


async def _accepted(req: Request, data: bytes, headers: Headers) -> tuple[bytes, Headers]:
    """Return an answer in the coding that the client prefers."""
    coding, plain = acceptance(req.get_header("Accept-Encoding") or "")
    if coding is None or (plain and len(data) < MIN_ENCODED_BYTES):
        return data, headers
    if len(data) < SLOW_BYTES:
        data = encoded(data, coding)
    else:
        data = await in_thread(partial(encoded, data, coding))
    return data, (*headers, *coding_headers(coding))


def _expect_served(req: Request) -> None:
    if "cloudevents" in (req.content_type or "").lower():
        raise falcon.HTTPUnsupportedMediaType(
            description="CloudEvents are not supported; send application/json", headers=_TAKEN
        )
