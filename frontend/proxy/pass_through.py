"""Pass-through of requests with paths of another server, and of its answers.

Method, path, query, body and headers stay unchanged, except for headers that concern one connection
alone. Bodies are streamed both ways, and neither side waits for more than the other can
take. Connections are kept; if one turns out to be closed, aiohttp asks once more on a new one if
the method allows it and nobody has begun to send a body.
"""

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from ringbatch.frontend.http.asgi import App, Receive, Scope, Send, refuse
from ringbatch.frontend.http.asgi_scope import EXCHANGES
from ringbatch.frontend.proxy.agent_probe import READY_PATH, Question
from ringbatch.shm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelServerBroken,
    ModelServerDown,
    RequestError,
)

log = logging.getLogger("ringbatch.frontend")

Header = tuple[bytes, bytes]
Judgement = Callable[[Mapping[str, Any]], bool]
"""Predicate of a request, by its ASGI scope."""

CONNECT_S: Final = 5.0
SILENCE_S: Final = 300.0
"""Longest silence of the other server."""
READY_S: Final = 1.0
"""Longest silence after a readiness probe, within the two seconds that probes wait."""

_MAX_HEAD_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 16
_OF_ONE_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_ASKED: Final = _OF_ONE_CONNECTION | {b"expect"}
_NOT_ANSWERED: Final = _OF_ONE_CONNECTION | {b"date"}
"""uvicorn sends a date of its own."""
_ADDED_BY_AIOHTTP: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_FINAL: Final = range(200, 600)
_WITHOUT_BODY: Final = (204, 304)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class PassThrough:
    """An application that passes on what another is not for.

    Args:
        app: serves what is for us.
        server: the other one, ``http://HOST:PORT``.
        ours: returns whether a request is for `app`.
        is_probe: which requests ask no more than whether requests can be answered.
        expect_ready: returns if the engine can answer; raises `RequestError`.
        withheld: headers that the other server is not to see, in lower case.
        question: asks the other server whether it is ready; None for the default.
    """

    def __init__(
        self,
        app: App,
        server: str,
        ours: Judgement,
        is_probe: Judgement,
        expect_ready: Callable[[], None],
        withheld: Iterable[bytes] = (),
        question: Question | None = None,
    ) -> None:
        self._app = app
        self._server = server
        self._ours = ours
        self._is_probe = is_probe
        self._expect_ready = expect_ready
        self._not_asked = _NOT_ASKED.union(withheld)
        self._question = question or Question()
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application: here, or by the other server."""
        if self._is_probe(scope):
            await self._probe(scope, receive, send)
        elif self._ours(scope):
            await self._app(scope, receive, send)
        else:
            await self._unless_gone(scope, send, self._pass(scope, receive, send))

    async def close(self) -> None:
        """Close the connections that are kept."""
        if self._session is not None:
            await self._session.close()

    async def _probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._expect_ready()
            await self._expect_other_ready()
        except RequestError as error:
            await refuse(send, error)
        else:
            # In the same scope, so that the access log sees how it ended.
            scope["path"] = READY_PATH
            await self._app(scope, receive, send)

    async def _expect_other_ready(self) -> None:
        limit = aiohttp.ClientTimeout(total=READY_S)
        try:
            url = URL(f"{self._server}{self._question.path}", encoded=True)
            async with self._client().get(url, timeout=limit, allow_redirects=False) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"the model server is not ready: {_words(error)}"
            raise ModelServerBroken(reason) from None
        if not self._question.is_ready(status):
            raise ModelServerBroken(f"the model server is not ready: it answered {status}")

    async def _unless_gone(self, scope: Scope, send: Send, passing: Any) -> None:
        """Give up if the client has gone: the other server need not go on for nobody."""
        work = asyncio.ensure_future(passing)
        exchanges = scope.get(EXCHANGES, set())
        exchange = _Exchange(work)
        exchanges.add(exchange)
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()
            exchanges.discard(exchange)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async with self._client().request(
                scope["method"],
                _url(self._server, scope["raw_path"], scope["query_string"]),
                headers=_asked(scope["headers"], self._not_asked),
                data=await _body_of(scope, receive),
                allow_redirects=False,
                skip_auto_headers=_ADDED_BY_AIOHTTP,
            ) as answer:
                head = _answered(answer.status, answer.raw_headers)
                started = True
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": head}
                )
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (RequestError, aiohttp.ClientError, TimeoutError, OSError) as error:
            if started:
                # Nothing can be taken back; the connection ends before the answer does.
                log.warning("frontend: an answer that was passed on broke off: %s", _words(error))
                return
            await refuse(send, _error(error))

    def _client(self) -> aiohttp.ClientSession:
        """Return the HTTP client, made on first use on the running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S
                ),
                auto_decompress=False,
                max_line_size=_MAX_HEAD_BYTES,
                max_field_size=_MAX_HEAD_BYTES,
            )
        return self._session


class _Connector(aiohttp.TCPConnector):
    """Connector that never reuses a connection with unexpected bytes.

    They would be taken for the answer to the next request, and each later answer for that to the
    request before it.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()


class _Exchange:
    """Exchange that ends with its client's connection."""

    def __init__(self, work: "asyncio.Future[None]") -> None:
        self._work = work

    def gone(self) -> None:
        """Stop, as no client waits any more; called by the connection."""
        self._work.cancel()


def _url(server: str, path: bytes, query: bytes) -> URL:
    target = (path + b"?" + query if query else path).decode("latin-1")
    if not target.isascii() or not target.isprintable():
        raise InvalidRequest("the path has characters that a URL has only percent-encoded")
    if not target.startswith("/"):
        # Behind the server's address it would be a part of that, and name another server.
        raise InvalidRequest("the target of the request is no path")
    return URL(f"{server}{target}", encoded=True)


def _answered(status: int, headers: Iterable[Header]) -> list[Header]:
    """Return the headers of the other server's answer, as its client gets them.

    Raises:
        ModelServerBroken: they may not be sent, or the status is none of an answer.
    """
    if status not in _FINAL:
        raise ModelServerBroken(f"the model server answered {status}, which is no status of HTTP")
    head = _kept(headers, _NOT_ANSWERED)
    for name, value in head:
        if _CONTROL.search(value):
            shown = name.decode("latin-1")
            raise ModelServerBroken(f"the model server's header {shown} has control characters")
    if status in _WITHOUT_BODY:
        # Theirs would be the length of a body that is elsewhere; uvicorn waits for that body here.
        return [(name, value) for name, value in head if name.lower() != b"content-length"]
    return head


def _asked(headers: Iterable[Header], dropped: frozenset[bytes]) -> list[tuple[str, str]]:
    """Return the headers of a request, as aiohttp takes them: it writes all text as UTF-8."""
    asked = []
    for name, value in _kept(headers, dropped):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        asked.append((name.decode("latin-1"), text))
    return asked


def _kept(headers: Iterable[Header], dropped: frozenset[bytes]) -> list[Header]:
    headers = list(headers)
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and name.lower() not in named
    ]


class _Once:
    """Body that can be read once.

    If aiohttp asks again, some of its releases would send the rest of a body, or nothing, as if it
    were the whole.

    Args:
        chunks: the body.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._begun = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._begun:
            raise ModelServerBroken("the model server gave no answer: it closed the connection")
        return self

    async def __anext__(self) -> bytes:
        self._begun = True
        return await anext(self._chunks)


async def _body_of(scope: Scope, receive: Receive) -> AsyncIterator[bytes] | None:
    """Return the body of a request; None if it has none."""
    framed = dict(scope["headers"])
    if b"transfer-encoding" in framed or framed.get(b"content-length", b"0") != b"0":
        return _Once(_body(receive))
    if scope["http_version"] != "2" or b"content-length" in framed:
        return None
    # No field of HTTP/2 announces a body, and the first piece is empty if no body has come yet.
    first = await receive()
    while first.get("more_body") and not first.get("body"):
        first = await receive()
    whole = first["type"] == "http.request" and not first.get("more_body")
    return None if whole and not first.get("body") else _Once(_body(receive, first))


async def _body(receive: Receive, first: Mapping[str, Any] | None = None) -> AsyncIterator[bytes]:
    message = first or await receive()
    while True:
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client has gone")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return
        message = await receive()


def _error(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    if isinstance(error, aiohttp.ClientConnectorError):
        return ModelServerDown(f"the model server cannot be reached: {_words(error)}")
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("the model server did not answer in time")
    log.warning("frontend: the model server gave no answer: %r", error)
    return ModelServerBroken(f"the model server gave no answer: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number).lower() if number else "no connection to it came about"
    if isinstance(error, TimeoutError):
        return "no answer came in time"
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return "it closed the connection"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "what it sent broke off"
    return "it did not answer as HTTP has it"
