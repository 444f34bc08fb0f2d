"""Fast lane: prediction requests from the socket straight to the ring.

One object for each connection. It takes the requests that `ringbatch.frontend.http.head`
recognises, and answers them one at a time, in the order they came. At the first request of another
kind it hands the connection, with every byte not yet answered, to `FallbackProtocol`; from there on
Falcon serves that connection. So everything else about HTTP is written once, elsewhere.

An answer in parts is a `ringbatch.frontend.http.event_answer.EventAnswer` while it lasts. What a
connection is apart from its requests is in `ringbatch.frontend.http.lane_connection`.
"""

import asyncio
from functools import partial
from typing import Final

from ringbatch.frontend.codec.asked_events import EventsAsked
from ringbatch.frontend.codec.outcome import JSON, Answer, Headers, error_body, outcome, status_of
from ringbatch.frontend.http.content_coding import (
    MIN_ENCODED_BYTES,
    SLOW_BYTES,
    coding_headers,
    encoded,
)
from ringbatch.frontend.http.event_answer import EventAnswer
from ringbatch.frontend.http.fast_lane_states import State
from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.head_framing import END, HEAD_TOO_LONG, MAX_HEAD_BYTES, head_size
from ringbatch.frontend.http.lane_connection import NO_HEAD, LaneConnection
from ringbatch.frontend.http.receiver import Receiver, read_with
from ringbatch.frontend.http.refusal_pacing import retry_after_s
from ringbatch.frontend.http.request_tracking import LARGE_ANSWER_BYTES
from ringbatch.frontend.http.response_heads import LENGTHS, write_whole
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.frontend.request.calls import Body, Upload
from ringbatch.shm.errors import Overloaded
from ringbatch.shm.host.background_tasks import in_thread
from ringbatch.shm.tallies import CLIENT_GONE, Protocol

_HEAD: Final = State.HEAD
_BODY: Final = State.BODY
_RECEIVING: Final = State.RECEIVING
_ANSWER: Final = State.ANSWER
_EVENTS: Final = State.EVENTS
_HELD: Final = State.HELD
_NEXT: Final = State.NEXT
_ENDED: Final = State.ENDED


class FastLane(LaneConnection):
    """Connection in the fast lane, until uvicorn takes it over. See `LaneConnection`."""

    __slots__ = ()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._given.server_state.connections.discard(self)
        if self._state is _BODY or self._state is _RECEIVING:
            self._count(CLIENT_GONE)
        self._end()
        if self._call is not None:
            self._call.abandon()
            self._call = None
            events, self._events = self._events, None
            if events is None or not events.gone():
                self._identify(self._head, 0)
        self._watch.taken()

    def data_received(self, data: bytes) -> None:
        """Take received bytes; called by the transport."""
        # The usual case: one whole request whose head is that of the one before.
        head = self._head
        if (
            self._state is _HEAD
            and not self._buffer
            and len(data) == head.request_bytes
            and data.startswith(self._head_text)
            and self._writable
        ):
            self._begin(head, data[head.head_bytes :])
        elif self._state is not _ENDED:
            if self._state is _HEAD and not self._buffer:
                if self._writable and self._serve_at_once(data):
                    return
                self._watch.begin()
            self._buffer += data
            self._advance()
            self._regulate()

    def _advance(self) -> None:
        """Serve the next request that the buffer holds, as far as it has come."""
        if self._state is _HEAD and self._buffer and self._writable:
            self._read_head()
        if self._state is not _BODY or not self._writable:
            return
        head = self._head
        if len(self._buffer) < head.content_length:
            if head.json_bytes is not None:
                self._prepare(head, head.json_bytes)
            if head.content_length > LARGE_BYTES:
                self._reserve(len(self._buffer))
            return
        body: Body
        if len(self._buffer) == head.content_length:
            body, self._buffer = self._buffer, bytearray()
        else:
            body = bytes(memoryview(self._buffer)[: head.content_length])
            del self._buffer[: head.content_length]
        self._holding.end()
        self._begin(head, body)

    def _begin(self, head: RequestHead, body: Body) -> None:
        self._state = _ANSWER
        model, timeout_ns, origin, account = head.model, head.timeout_ns, head.origin, head.account
        service = self._predictions
        if head.events:
            self._begin_in_parts(head, body)
            return
        try:
            if head.infer:
                self._call = service.infer(
                    model, body, head.json_bytes, self._answer, timeout_ns, origin, account
                )
            else:
                self._call = service.predict(model, body, self._answer, timeout_ns, origin, account)
        except EventsAsked:
            self._begin_in_parts(head, body)

    def _begin_in_parts(self, head: RequestHead, body: Body) -> None:
        self._events = events = self._event_answer(head)
        self._call = events.start(self._predictions, body)

    def _event_answer(self, head: RequestHead) -> EventAnswer:
        heads = self._settings.response_heads
        return EventAnswer(self, self._transport, heads, self._watch, head)

    def begin_events(self) -> bool:
        """As in `EventConnection`."""
        self._state = _EVENTS
        self._regulate()
        return self._keep_alive

    def end_events(self, keep_alive: bool) -> None:
        """As in `EventConnection`."""
        self._call = self._events = None
        self._state = _HEAD
        self._clock.age_s = 0
        if not keep_alive or self._stopping:
            self._part()
            return
        if self._buffer:
            self._wait_for_turn()
        self._regulate()

    def answer_whole(self, answer: Answer) -> None:
        """As in `EventConnection`."""
        self._events = None
        self._answer(answer)

    def _prepare(self, head: RequestHead, json_bytes: int) -> None:
        """Have what is still to come of a large body written to where it belongs, if it can be."""
        buffer = self._buffer
        binary_bytes = head.content_length - json_bytes
        if binary_bytes < LARGE_BYTES or len(buffer) < json_bytes or self._tried:
            return
        self._tried = True
        text = bytes(memoryview(buffer)[:json_bytes])
        upload = self._predictions.prepare(
            head.model, text, binary_bytes, head.timeout_ns, head.account
        )
        if upload is None:
            return
        self._state = _RECEIVING
        if self._receiver is None:
            self._receiver = Receiver(self)
            read_with(self._transport, self._receiver)
        self._receiver.receive(upload, memoryview(buffer)[json_bytes:])
        self._buffer = bytearray()
        self._holding.end()

    def arrived(self, upload: Upload) -> None:
        """Take a request whose body is complete in its slot; called by the receiver."""
        self._state = _ANSWER
        self._call = upload.arrived(self._answer)

    def _serve_at_once(self, data: bytes) -> bool:
        """Serve one whole request, or hand over a request of another kind; return whether so."""
        end = data.find(END, 0, MAX_HEAD_BYTES)
        head = None if end < 0 else self._take_head(data[: end + len(END)])
        if end < 0 or (head is not None and head.request_bytes != len(data)):
            return False
        if head is not None:
            self._begin(head, data[head.head_bytes :])
        else:
            self._buffer += data
            self._hand_over()
        return True

    def _read_head(self) -> None:
        buffer = self._buffer
        size = head_size(buffer, self._seen_bytes)
        self._seen_bytes = len(buffer)
        if size == 0:
            if len(buffer) >= MAX_HEAD_BYTES:
                self._refuse(431, HEAD_TOO_LONG)
        elif size is None or self._take_head(bytes(memoryview(buffer)[:size])) is None:
            self._hand_over()
        else:
            del buffer[:size]
            self._state = _BODY

    def _take_head(self, text: bytes) -> RequestHead | None:
        """Read a head, and keep it if the fast lane takes its request."""
        head = self._settings.heads.read(text, self._peer)
        if head is not None:
            self._seen_bytes = 0
            self._tried = False
            self._head_text, self._head = text, head
            self._keep_alive = head.keep_alive and not self._leaving
        return head

    def _reserve(self, size: int) -> None:
        # Reserve room for received bytes, not for declared ones: to declare costs nothing.
        try:
            self._holding.grow(size)
        except Overloaded as error:
            self._keep_alive = False
            refusal = outcome(error)
            self._count(status_of(error), len(refusal.body))
            self._answer_unusually(*refusal)

    def _answer(self, answer: Answer) -> None:
        status, body, headers = answer
        self._state = _HEAD
        self._call = None
        self._clock.age_s = 0
        size = len(body)
        head = self._head
        drawn = 0 if self._samples is None else self._samples.of(head.trace)
        usual = headers is JSON and status == 200 and self._keep_alive and size < MIN_ENCODED_BYTES
        meta, is_timed = self._metadata, False
        if drawn or self._outcomes.must_log or self._watch.began_ns or size >= LARGE_ANSWER_BYTES:
            self._identify(head, size, drawn=drawn)
        else:
            self._identity = head.request_id or self._make_id()
            if meta.anything or head.asks:
                self._identity += head.cors
                is_timed = meta.server_timing or head.timing
                if is_timed and not usual:
                    self._identity = meta.with_timing(b"", self._identity)
                if meta.load_report or head.load:
                    self._identity += meta.load_line(head.load)
        if is_timed and usual:
            self._write(meta.with_timing(self._usual_head(), self._identity, LENGTHS[size], body))
        elif usual:
            self._write(self._usual_head() + self._identity + LENGTHS[size] + body)
        elif head.coding and status == 200 and size >= MIN_ENCODED_BYTES:
            self._encode(head.coding, body, headers)
        elif status == 200 and self._keep_alive:
            usual_head = self._settings.response_heads.success(headers)
            write_whole(self._transport, usual_head, self._identity, body)
        elif status == 503 or status == 429:
            self._refused(answer)
        else:
            self._answer_unusually(status, body, headers)
        if self._buffer and self._state is _HEAD:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Have what came meanwhile wait for the next turn of the loop."""
        self._watch.begin()
        self._state = _NEXT
        self._loop.call_soon(self._go_on)

    def _identify(self, head: RequestHead, size: int, *, drawn: int | None = None) -> None:
        """Record the end of a request, with so many bytes in its answer."""
        request_id = head.request_id or self._make_id()
        self._identity = self._watch.ended(head, request_id, size, drawn=drawn)

    def _go_on(self) -> None:
        if self._state is _NEXT:
            self._state = _HEAD
        if self._state is not _ENDED:
            self._advance()
            self._regulate()

    def _encode(self, coding: str, body: bytes, headers: Headers) -> None:
        headers = (*headers, *coding_headers(coding))
        if len(body) < SLOW_BYTES:
            self._answer_unusually(200, encoded(body, coding), headers)
            return
        self._state = _ANSWER
        encoding = in_thread(partial(encoded, body, coding))
        encoding.add_done_callback(partial(self._encoded, headers))

    def _encoded(self, headers: Headers, encoding: asyncio.Future[bytes]) -> None:
        if self._state is _ENDED:
            return
        self._state = _HEAD
        self._clock.age_s = 0
        self._answer_unusually(200, encoding.result(), headers)
        self._go_on()

    def _answer_unusually(self, status: int, body: bytes, headers: Headers) -> None:
        self._watch.sent(len(body))
        head = self._settings.response_heads.other(status, headers, keep_alive=self._keep_alive)
        write_whole(self._transport, head, self._identity, body)
        if not self._keep_alive:
            self._part()

    def _refused(self, answer: Answer) -> None:
        """Send a refusal, or have it wait for its turn if its client has come too early."""
        pacing, deadline_ns = self._settings.pacing, self._outcomes.deadline_ns
        if self._keep_alive and pacing.hold(self, self._retry_ns, deadline_ns, self._loop):
            self._state = _HELD
            self._held = answer
        else:
            self._send_refusal(answer)

    def release(self) -> None:
        """As in `Asker`."""
        answer, self._held = self._held, None
        if answer is None:
            return
        self._state = _HEAD
        self._clock.age_s = 0
        self._send_refusal(answer)
        if self._buffer and self._state is _HEAD:
            self._wait_for_turn()

    def _send_refusal(self, answer: Answer) -> None:
        # Requests in the buffer were sent before the client could read this refusal.
        if not self._buffer:
            pacing = self._settings.pacing
            self._retry_ns = pacing.clock() + retry_after_s(answer[2]) * 1_000_000_000
        self._answer_unusually(*answer)

    def _refuse(self, status: int, text: str) -> None:
        self._keep_alive = False
        body = error_body(text)
        self._count(status, len(body))
        self._answer_unusually(status, body, JSON)

    def _count(self, status: int, size: int = 0) -> None:
        """Count a request that has ended before it was complete."""
        if self._state is _HEAD:
            self._predictions.record_outside(Protocol.HTTP, status)
            self._identify(NO_HEAD, size)
            return
        head = self._head
        self._predictions.record_outside(self._watch.protocol_of(head), status, head.model)
        self._identify(head, size)

    def _refused_elsewhere(self, status: int) -> bytes:
        """Count a request that `FallbackProtocol` refused; return the id that it gets."""
        self._predictions.record_outside(Protocol.HTTP, status)
        self._identify(NO_HEAD, 0)
        return self._identity

    def _hand_over(self) -> None:
        self._settings.count_hand_over()
        self._given.server_state.connections.discard(self)
        self._state = _ENDED
        data, self._buffer = bytes(self._buffer), bytearray()
        transport, refused = self._transport, self._refused_elsewhere
        protocol = self._settings.successor(data, self._given, refused)
        protocol.connection_made(transport)
        read_with(transport, protocol)
        if not self._reading:
            transport.resume_reading()
        protocol.data_received(data)
        if self._stopping:
            protocol.shutdown()
        elif self._leaving:
            protocol.leave()
