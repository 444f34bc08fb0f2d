"""An answer in parts on Falcon: server-sent events, as the parts come."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from falcon.asgi import Response

from ringbatch.frontend.codec.event_stream import (
    BEGUN,
    COMMENT,
    END,
    ENDED,
    HEADERS,
    LAST_EVENT,
    MOST_UNREAD_BYTES,
    SILENCE_S,
    event,
    event_of,
    too_much_unread,
)
from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.falcon.event_form import Forms, events_together
from ringbatch.frontend.http.asgi_scope import PieceOutlet
from ringbatch.frontend.http.parts_timing import PartsTiming
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.errors import InvalidRequest


class EventStream:
    """Parts of one answer, between the service and the task that sends them.

    While that task waits for the next one, a part may go out without it.

    Args:
        last: returns the end of the request that ended last.
        limits: that the request asks for.
        stalled_s: as of `InParts`.
        event_source: whether a browser's EventSource reads them.
        timing: of the answer, if the client is to get it.
        outlet: sends events at once; None if the task sends all.
        forms: of the events over the connection.

    Attributes:
        in_parts: for the service.
        ending: the end of the request, once there is one.
        call: the request, while it is on its way.
    """

    def __init__(
        self,
        last: Callable[[], RequestOutcome],
        limits: PartLimits,
        stalled_s: Callable[[], int],
        *,
        event_source: bool = False,
        timing: PartsTiming | None = None,
        outlet: PieceOutlet | None,
        forms: Forms,
    ) -> None:
        self._event_source = event_source
        self._outlet = outlet
        self._time = asyncio.get_running_loop().time
        self._timing = timing
        take = self._take if timing is None else self._take_timed
        in_parts: InParts[Answer] = InParts(take, END, limits=limits, stalled_s=stalled_s)
        if timing is None and outlet is not None:
            in_parts = in_parts._replace(direct=partial(events_together, self, forms))
        self.in_parts = in_parts
        self.ending: RequestOutcome | None = None
        self.call: RequestHandle | None = None
        self._last = last
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        self._answer: Answer | None = None
        self._news = asyncio.Event()
        self._waits = False
        """True while the task waits for the next part, with all before it sent."""
        self._sent_s = 0.0
        """Time of the loop at which the latest part or comment was sent."""

    def reply(self, answer: Answer) -> None:
        """Take the end of the answer, or all of it; called by the service."""
        if self._answer is None:
            self.ending = self._last()
            self._answer = answer
            self._news.set()

    def gone(self) -> None:
        """Stop, as the client has gone; called by the connection."""
        self._end(outcome(InvalidRequest("the client has gone")))

    def close(self) -> None:
        """Stop, as nobody reads any more; do nothing if the answer has ended."""
        self._end(END)

    async def begin(self) -> Answer | None:
        """Wait for the first part; return the whole answer if that comes instead."""
        await self._news.wait()
        if self._parts or self._answer is None:
            return None
        return None if self._answer[0] == ENDED else self._answer

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events, the last one of an error if there is one."""
        clock = self._time
        self._sent_s = clock()
        if self._event_source:
            yield BEGUN
        while True:
            self._waits = not self._news.is_set()
            try:
                async with asyncio.timeout_at(self._sent_s + SILENCE_S):
                    await self._news.wait()
            except TimeoutError:
                if clock() < self._sent_s + SILENCE_S:
                    continue
                self._waits, self._sent_s = False, clock()
                yield COMMENT
                continue
            self._waits, self._sent_s = False, clock()
            self._news.clear()
            if self._parts:
                events = b"".join(self._parts)
                self._parts.clear()
                self._unread_bytes = 0
                yield events
            if self._answer is not None and not self._parts:
                status, data, _ = self._answer
                if status != ENDED:
                    yield event(data)
                if self._event_source and status in (ENDED, 200):
                    yield LAST_EVENT
                if self._timing is not None and self.ending is not None:
                    yield self._timing.event(self.ending)
                return

    @property
    def is_free(self) -> bool:
        """As in `Receiver`."""
        outlet = self._outlet
        return self._waits and not self._parts and outlet is not None and outlet.takes(1)

    def _take(self, answer: Answer) -> None:
        """Take a part; called by the service, which ends the request with the error raised."""
        self.take_event(event_of(answer))

    def take_event(self, text: bytes) -> None:
        """Take a part as an event; raises as `too_much_unread`."""
        if self._waits and self._outlet is not None and not self._parts and self._outlet.send(text):
            self._sent_s = self._time()
            return
        if self._unread_bytes > MOST_UNREAD_BYTES:
            raise too_much_unread()
        self._parts.append(text)
        self._unread_bytes += len(text)
        self._news.set()

    def _take_timed(self, answer: Answer) -> None:
        assert self._timing is not None, "its client asks for it"
        self._timing.note()
        self._take(answer)

    def _end(self, answer: Answer) -> None:
        if self._answer is None:
            if self.call is not None:
                self.call.abandon()
            self.reply(answer)


def begin_events(resp: Response, stream: EventStream, close: Callable[[], None]) -> None:
    """Let a response be the events of a stream.

    Args:
        resp: has no body yet.
        stream: has begun.
        close: called behind the last event, or when nobody reads any more; closes the stream.
    """

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            async for text in stream.events():
                yield text
        finally:
            close()

    for header, value in HEADERS:
        resp.set_header(header, value)
    resp.stream = events()
