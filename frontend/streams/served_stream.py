"""HTTP/2 stream: a request to the ASGI application, its body as it comes, its answer as it goes.

A body is read ahead as far as the stream's window, and what is read ahead counts in the process's
budget. An answer waits for its client's windows. Either may stop; the clocks are those of HTTP/1.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

from ringbatch.frontend.codec.outcome import error_body, outcome
from ringbatch.frontend.http.asgi import App, Scope
from ringbatch.frontend.http.asgi_scope import (
    BEGAN,
    EXCHANGES,
    NOTHING_YET,
    OUTLET,
    REFUSED,
    WHOLE,
    Exchanges,
)
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.stall_clock import StallClock
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import INTERNAL_ERROR
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.answer_head import CONTINUE, answer_head
from ringbatch.frontend.streams.outlet import Outlet
from ringbatch.frontend.streams.rest_head import RestHead
from ringbatch.shm.errors import Overloaded

log = logging.getLogger("ringbatch.frontend")

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_START: Final = "http.response.start"
_GONE: Final = {"type": "http.disconnect"}


class StreamConnection(Protocol):
    """The connection."""

    core: Connection[RestHead]
    budget: BodyBudget

    def flush_soon(self) -> None:
        """Schedule a flush of the connection, as there may be something to send."""

    def let_go(self, stream: Stream[RestHead]) -> None:
        """Forget a served stream."""

    def refuse(self, stream: Stream[RestHead], status: int, body: bytes) -> None:
        """Answer a stream with that JSON, and leave it to the caller to end the stream."""

    def made(self, size: int, *, first: bool) -> None:
        """Note that a piece of an answer is made, which has so many bytes."""

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""


class ServedStream:
    """HTTP/2 stream that the ASGI application serves.

    Args:
        owner: its connection.
        stream: the stream of the connection.
        scope: entries of the ASGI scope that all requests of the connection share.
    """

    __slots__ = (
        "_answered",
        "_asked_before",
        "_clock",
        "_continues",
        "_exchanges",
        "_held_bytes",
        "_is_counted",
        "_news",
        "_owner",
        "_read_bytes",
        "_sending",
        "_stall",
        "_stream",
        "_task",
        "_unwanted",
        "_whole",
        "scope",
    )

    def __init__(
        self, owner: StreamConnection, stream: Stream[RestHead], scope: Mapping[str, Any]
    ) -> None:
        head = stream.head
        self._owner = owner
        self._stream = stream
        self._clock = Clock(0)
        self._continues = head.continues
        self._exchanges = Exchanges()
        self._stall = StallClock()
        self._exchanges.stalled_s = partial(self._stall.seconds, stream.look)
        self._asked_before = False
        self._held_bytes = 0
        self._read_bytes = 0
        self._is_counted = False
        """True once its connection knows that there is an answer."""
        self._whole = False
        self._sending = False
        self._answered = False
        self._unwanted = False
        self._news: list[asyncio.Future[None]] = []
        """An application may listen in one task and answer in another."""
        self._task: asyncio.Task[None] | None = None
        self.scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "2",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": list(head.headers),
            EXCHANGES: self._exchanges,
            BEGAN: time.monotonic_ns(),
            WHOLE: _has_come(stream),
            OUTLET: Outlet(owner.core, stream, owner.flush_soon),
            **scope,
        }

    def start(self, app: App, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
        """Have the application serve the stream.

        Args:
            app: the application; it sends answers as `ringbatch.frontend.http.answering.answered`
                does.
            loop: the connection's event loop.
        """
        self._task = loop.create_task(self._run(app))
        return self._task

    def happened(self) -> None:
        """Look for new bytes; called by the connection."""
        stream = self._stream
        if self._unwanted or self.scope.get(REFUSED):
            self._owner.core.taken(stream, sum(map(len, stream.pieces)))
            stream.pieces.clear()
            if self._unwanted and stream.ended:
                self._end()
            return
        try:
            self._hold(stream.received_bytes - self._read_bytes)
        except Overloaded as error:
            self.refuse(*outcome(error)[:2])
            return
        if _has_come(stream):
            self.scope[WHOLE] = True
        self._wake()

    def looked(self) -> None:
        """Look for room to send; called by the connection."""
        if self._sending and not self._stream.queue:
            self._wake()

    def tick(self) -> None:
        """Count a second; called by the connection."""
        stream = self._stream
        if stream.gone:
            return
        self._stall.tick(*stream.look())
        # If pieces lie here, it is the application that takes its time; where answers wait, their
        # client is to take some before it may send on.
        waits = _has_come(stream) or stream.pieces or self.scope.get(REFUSED)
        waits = waits or self._owner.core.full
        phase = Phase.ANSWER if waits else Phase.BODY
        if self._unwanted:
            phase = Phase.UNWANTED
        if not self._clock.is_over(phase, stream.received_bytes):
            return
        if self._unwanted:
            self._end()
        else:
            self.refuse(408, error_body(BODY_TOO_SLOW))
            self.leave()

    def refuse(self, status: int, body: bytes) -> None:
        """Answer the stream with that JSON, even if the application serves it.

        Reset the stream if its answer has begun.
        """
        stream = self._stream
        self.scope[REFUSED] = True
        self._answered = self._answered or self._task is None
        if stream.head_sent:
            self._owner.core.reset(stream)
        else:
            self._owner.refuse(stream, status, body)
            self._finish()
        self.cancel()

    def leave(self) -> None:
        """Prepare for the end of the connection; called by the connection."""
        if self._unwanted and not self._stream.gone:
            self._end()

    def cancel(self) -> None:
        """Stop: the stream is gone, and no client waits any more; called by the connection."""
        self._hold(0)
        self._wake()
        if self._answered and self._stream.gone:
            self._owner.let_go(self._stream)
        self._exchanges.end()

    async def _run(self, app: App) -> None:
        stream = self._stream
        try:
            await app(self.scope, self._receive, self._send)
        except BaseException:
            # uvicorn does the same over HTTP/1; `answered` lets only our own defects through.
            log.exception("frontend: a stream was not served")
        self._hold(0)
        if not stream.gone and stream.trailers is None and not self.scope.get(REFUSED):
            self._owner.core.reset(stream, INTERNAL_ERROR)
        self._answered = True
        if stream.gone or not self._unwanted:
            self._owner.let_go(stream)

    async def _receive(self) -> Mapping[str, Any]:
        """Return more of the body, or the client's disconnect; called by the application."""
        stream, core = self._stream, self._owner.core
        first, self._asked_before = not self._asked_before, True
        if not (stream.head_sent or stream.pieces or stream.ended or stream.gone):
            if first:
                # The head may suffice for an answer, and a client may wait for it before its body.
                return NOTHING_YET
            if self._continues:
                core.inform(stream, CONTINUE)
                self._owner.flush_soon()
            self._continues = False
        while not (self._is_made() or stream.pieces or (_has_come(stream) and not self._whole)):
            await self._until_news()
        if self._is_made() or self.scope.get(REFUSED) or (self._whole and not stream.pieces):
            return _GONE
        body = b"".join(stream.pieces)
        stream.pieces.clear()
        self._hold(0)
        self._read_bytes += len(body)
        core.taken(stream, len(body))
        self._owner.flush_soon()
        self._whole = _has_come(stream)
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def _send(self, message: dict[str, Any]) -> None:
        """Send a part of the answer for the application; return once there is room for more."""
        stream, core = self._stream, self._owner.core
        if self._is_made() or self.scope.get(REFUSED):
            return
        if message["type"] == _START:
            own = self._owner.default_headers()
            core.begin(stream, answer_head(message["status"], [*own, *message["headers"]]))
        else:
            core.send(stream, message["body"])
            self._count(len(message["body"]))
            if not message.get("more_body", False):
                self._finish()
        self._owner.flush_soon()
        self._sending = True
        while stream.queue and not stream.gone:
            await self._until_news()
        self._sending = False

    def _is_made(self) -> bool:
        """Return whether the answer is complete, or no client wants it."""
        return self._stream.gone or self._stream.trailers is not None or self._unwanted

    def _finish(self) -> None:
        """Finish the answer. If the body is still coming, read and drop the rest for a while.

        Many clients take a reset for a failure to send, even after an answer.
        """
        stream, core = self._stream, self._owner.core
        if not stream.ended:
            self._unwanted = stream.lingers = True
            self._hold(0)
            core.taken(stream, sum(map(len, stream.pieces)))
            stream.pieces.clear()
        core.end(stream, b"")
        self._count(0)
        self._wake()

    def _count(self, size: int) -> None:
        """Have the connection count a piece of the answer."""
        self._owner.made(size, first=not self._is_counted)
        self._is_counted = True

    def _end(self) -> None:
        """Wait for nothing more; have a client that still sends stop."""
        self._unwanted = False
        self._owner.core.part(self._stream)
        if self._answered:
            self._owner.let_go(self._stream)
        else:
            self._owner.flush_soon()

    async def _until_news(self) -> None:
        news = asyncio.get_running_loop().create_future()
        self._news.append(news)
        try:
            await news
        finally:
            self._news.remove(news)

    def _wake(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)

    def _hold(self, size: int) -> None:
        """Set the number of bytes that have come and are not taken yet."""
        budget, more = self._owner.budget, size - self._held_bytes
        if more > 0:
            budget.take(more)
        else:
            budget.give(-more)
        self._held_bytes = size


def _has_come(stream: Stream[RestHead]) -> bool:
    """Return whether all of a body is there; its end may come later if its length is known."""
    return stream.ended or stream.body_left == 0
