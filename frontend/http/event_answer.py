"""An answer in parts on the fast lane: server-sent events, as the parts come.

The service gives each part to `EventAnswer.take`, and calls `flush` behind those that it found
together, so that they leave in one write. There is no task, no future and no timer: the lane's
`tick` counts the silence between two parts.

The head leaves with the first part. What comes before it, an error or an answer with binary data,
is an answer as any. Behind it an error is the last event. A model that gives no parts answers with
a single event.
"""

import asyncio
from typing import Final, Protocol

from ringbatch.frontend.codec.event_stream import (
    COMMENT,
    END,
    ENDED,
    HEADERS,
    MOST_UNREAD_BYTES,
    SILENCE_S,
    event,
    event_of,
    is_text,
    too_much_unread,
)
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.request_tracking import RequestTracking
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.http.stall_clock import StallClock
from ringbatch.frontend.request.calls import Body, PredictionService, RequestHandle
from ringbatch.frontend.request.parts_task import InParts

_CHUNKED: Final = b"\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class EventConnection(Protocol):
    """Interface of the connection that events go to."""

    def begin_events(self) -> bool:
        """Note that the head of an answer in parts leaves; return whether the connection stays."""

    def end_events(self, keep_alive: bool) -> None:
        """Go on with the next request, or close: the answer has left."""

    def answer_whole(self, answer: Answer) -> None:
        """Send an answer that comes in place of events."""


class EventAnswer:
    """Events of one answer.

    Args:
        connection: that they go to.
        transport: of the connection.
        heads: makes the heads of answers.
        watch: records the requests of the connection.
        head: of the request.

    Attributes:
        begun: whether the head of the answer has left.
        request_id: as the client gets it; empty before the head has left.
        bytes_out: bytes of events that have left.
        sent_bytes: of these with all that frames them.
        keeps_bytes: bytes of further events that are kept, for the payload log.
        kept: the events that are kept.
    """

    __slots__ = (
        "_connection",
        "_head",
        "_heads",
        "_keep_alive",
        "_parts",
        "_silence_s",
        "_stall",
        "_timing",
        "_transport",
        "_unread_bytes",
        "_watch",
        "begun",
        "bytes_out",
        "keeps_bytes",
        "kept",
        "request_id",
        "sent_bytes",
    )

    def __init__(
        self,
        connection: EventConnection,
        transport: asyncio.Transport,
        heads: ResponseHeads,
        watch: RequestTracking,
        head: RequestHead,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._heads = heads
        self._watch = watch
        self._head = head
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        """Upper bound of the bytes of parts that the client has not taken: the parts since the last
        look, and those that waited then."""
        self._silence_s = 0
        self._stall = StallClock()
        self._keep_alive = True
        self._timing = watch.timing_of_parts(head)
        self.begun = False
        self.request_id = b""
        self.bytes_out = self.sent_bytes = self.keeps_bytes = 0
        self.kept = b""

    def start(self, service: PredictionService, body: Body) -> RequestHandle | None:
        """Send the request on its way, as `PredictionService` does."""
        head = self._head
        model, timeout_ns, origin, account = head.model, head.timeout_ns, head.origin, head.account
        take = self.take if self._timing is None else self._take_timed
        parts: InParts[Answer] = InParts(
            take, END, self.flush, head.part_limits, stalled_s=self._stalled_s
        )
        if head.generates:
            return service.generate(model, body, self.reply, timeout_ns, origin, account, parts)
        if head.infer:
            return service.infer(model, body, None, self.reply, timeout_ns, origin, account, parts)
        return service.predict(model, body, self.reply, timeout_ns, origin, account, parts)

    def take(self, answer: Answer) -> None:
        """Take a part; called by the service.

        Raises:
            RequestError: the request is to end with it.
        """
        text = event_of(answer)
        if self._unread_bytes > MOST_UNREAD_BYTES and self._unread() > MOST_UNREAD_BYTES:
            raise too_much_unread()
        self._parts.append(text)
        self._unread_bytes += len(text)

    def _take_timed(self, answer: Answer) -> None:
        assert self._timing is not None, "its client asks for it"
        self._timing.note()
        self.take(answer)

    def flush(self) -> None:
        """Send the parts that have come; called by the service."""
        if self._parts:
            self._send(b"")

    def reply(self, answer: Answer) -> None:
        """Take the end of the answer, or all of it; called by the service."""
        status, data, headers = answer
        if status != ENDED:
            first = not (self.begun or self._parts)
            if first and (status != 200 or not is_text(headers)):
                self._connection.answer_whole(answer)
                return
            self._parts.append(event(data))
        if self._timing is not None:
            self._parts.append(self._watch.timing_event(self._timing))
        self._send(_LAST_CHUNK)
        self._record()
        self._connection.end_events(self._keep_alive)

    def tick(self) -> None:
        """Count a second, and send a comment after some without a part; called by the lane."""
        self._silence_s += 1
        self._stall.tick(*self._look())
        # A client that has not read what there is needs no more.
        if self._silence_s >= SILENCE_S and not self._transport.get_write_buffer_size():
            self._parts.append(COMMENT)
            self._send(b"")

    def gone(self) -> bool:
        """Record that the client has left; return whether the answer had begun."""
        if self.begun:
            self._record()
        return self.begun

    def _stalled_s(self) -> int:
        return self._stall.seconds(self._look)

    def _look(self) -> tuple[int, bool]:
        """Return the bytes that the client has taken, and whether others wait for it."""
        waiting = 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()
        return self.sent_bytes - waiting, waiting > 0

    def _unread(self) -> int:
        """Return the bytes that the client has not taken."""
        waiting = sum(map(len, self._parts))
        self._unread_bytes = waiting + (
            0 if self._transport.is_closing() else self._transport.get_write_buffer_size()
        )
        return self._unread_bytes

    def _send(self, last: bytes) -> None:
        """Send all events that wait as one chunk, and the last chunk behind it."""
        parts = self._parts
        events = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._silence_s = 0
        size = len(events)
        front = b"" if self.begun else self._begin()
        if size:
            front += b"%x\r\n" % size
            last = b"\r\n" + last
        text = b"".join((front, events, last))
        self.bytes_out += size
        if self.keeps_bytes > 0:
            self.kept += events[: self.keeps_bytes]
            self.keeps_bytes -= size
        self.sent_bytes += len(text)
        if not self._transport.is_closing():
            self._transport.write(text)

    def _begin(self) -> bytes:
        """Return the head of the answer, which is about to leave."""
        head, heads = self._head, self._heads
        self.begun = True
        self._keep_alive = self._connection.begin_events()
        self.request_id = head.request_id or heads.ids.make()
        if self._keep_alive:
            text = heads.success(HEADERS)
        else:
            text = heads.other(200, HEADERS, keep_alive=False)
        return text + self._watch.begun(head, self.request_id) + _CHUNKED

    def _record(self) -> None:
        self._watch.ended_in_parts(self._head, self.request_id, self.bytes_out)
