"""Fast lane: prediction requests from the socket straight to the ring.

One object for each connection. It takes the requests that `ringbatch.frontend.http.head`
recognises, and answers them one at a time, in the order they came. At the first request of another
kind it hands the connection, with every byte not yet answered, to `FallbackProtocol`; from there on
Falcon serves that connection. So everything else about HTTP is written once, elsewhere.

There are no timers here. `tick` is called once a second by the server for every connection.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import JSON, Answer, Headers, error_body, outcome, status_of
from ringbatch.frontend.http.body_budget import Holding
from ringbatch.frontend.http.content_coding import (
    MIN_ENCODED_BYTES,
    SLOW_BYTES,
    coding_headers,
    encoded,
)
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.http.fast_lane_states import PHASE_OF, State
from ringbatch.frontend.http.head import END, HEAD_TOO_LONG, MAX_HEAD_BYTES, RequestHead, head_size
from ringbatch.frontend.http.lingering_close import linger
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, HEAD_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.receiver import Receiver, read_with
from ringbatch.frontend.http.request_tracking import LARGE_ANSWER_BYTES, RequestTracking
from ringbatch.frontend.http.response_heads import LENGTHS, write_whole
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.frontend.request.calls import Body, RequestHandle, Upload
from ringbatch.shm.errors import Overloaded
from ringbatch.shm.host.background import in_thread
from ringbatch.shm.tallies import CLIENT_GONE, Protocol

MAX_WAITING_BYTES: Final = 1 << 16
"""Bytes that are read ahead of the request that is being answered."""
LAST_LOOK_S: Final = 0.001
"""After that, so that the loop reads once more whatever has come."""
_HEAD: Final = State.HEAD
_BODY: Final = State.BODY
_RECEIVING: Final = State.RECEIVING
_ANSWER: Final = State.ANSWER
_NEXT: Final = State.NEXT
_ENDED: Final = State.ENDED
_NONE_HAS_AS_MANY: Final = -1
_NO_HEAD: Final = RequestHead("", 0, 0, _NONE_HAS_AS_MANY, keep_alive=True)


class FastLane(asyncio.Protocol):
    """One connection, until it is handed over.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, _loop: as uvicorn gives them to its protocols.
    """

    __slots__ = (
        "_buffer",
        "_call",
        "_clock",
        "_given",
        "_head",
        "_head_text",
        "_holding",
        "_identity",
        "_keep_alive",
        "_leaving",
        "_loop",
        "_make_id",
        "_metadata",
        "_outcomes",
        "_peer",
        "_predictions",
        "_reading",
        "_receiver",
        "_samples",
        "_seen_bytes",
        "_server_state",
        "_settings",
        "_state",
        "_stopping",
        "_transport",
        "_tried",
        "_upload",
        "_usual_head",
        "_watch",
        "_writable",
        "_write",
    )

    _transport: asyncio.Transport
    _write: Callable[[bytes], None]
    _watch: RequestTracking

    def __init__(
        self,
        settings: FastLaneSettings,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._settings = settings
        self._server_state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._given = config, server_state, app_state, self._loop
        self._predictions = settings.predictions
        self._usual_head = settings.response_heads.usual
        self._make_id = settings.response_heads.ids.make
        recorder = settings.recorder
        self._outcomes = recorder.outcomes
        self._samples = recorder.samples
        self._metadata = recorder.metadata
        self._identity = b""
        """Head of the next answer from the id of its request on."""
        self._head_text = b""
        self._head = _NO_HEAD
        """The head of the current request, or of the last one."""
        self._state = _HEAD
        self._tried = False
        self._buffer = bytearray()
        self._seen_bytes = 0
        """Of a head that is coming, what was there at the last look for its end."""
        self._call: RequestHandle | None = None
        self._upload: Upload | None = None
        self._receiver: Receiver | None = None
        self._keep_alive = True
        self._leaving = False
        self._stopping = False
        self._reading = True
        self._writable = True
        self._clock = Clock(settings.idle_timeout_s)
        self._holding = Holding(settings.budget)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection; called by the transport."""
        self._transport = transport  # type: ignore[assignment]
        self._write = self._transport.write
        self._peer = self._settings.accounts.peer(transport.get_extra_info("peername"))
        self._watch = RequestTracking(self._settings.recorder, self._transport, self._loop)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        if self._settings.stopping():
            self.shutdown()
        elif self._settings.leaving():
            self.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._server_state.connections.discard(self)
        if self._state is _BODY or self._state is _RECEIVING:
            self._count(CLIENT_GONE)
        self._end()
        if self._call is not None:
            self._call.abandon()
            self._call = None
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

    def pause_writing(self) -> None:
        """Pause, as the client does not read its answers; called by the transport."""
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        """Go on, as the client reads again; called by the transport."""
        self._writable = True
        self._watch.taken()
        self._advance()
        self._regulate()

    def tick(self) -> None:
        """Count a second; called by the server."""
        phase = self.phase()
        self._watch.look()
        if not self._clock.is_over(phase, self._moved_bytes(phase)):
            return
        if phase is Phase.IDLE:
            self._close()
        elif phase is Phase.HEAD:
            self._refuse(408, HEAD_TOO_SLOW)
        elif phase is Phase.BODY:
            self._refuse(408, BODY_TOO_SLOW)
        else:
            self._transport.abort()

    def phase(self) -> Phase:
        """Return the phase of the connection."""
        if not self._writable:
            return Phase.TAKING
        if self._state is _HEAD and not self._buffer:
            return Phase.IDLE
        return PHASE_OF[self._state]

    def _moved_bytes(self, phase: Phase) -> int:
        if phase is Phase.TAKING:
            return -self._transport.get_write_buffer_size()
        if self._state is _RECEIVING and self._receiver is not None:
            return self._receiver.received_bytes
        return len(self._buffer)

    def forget(self) -> None:
        """Forget the last head, whose meaning may have changed; called by the server."""
        self._head = self._head._replace(request_bytes=_NONE_HAS_AS_MANY)

    def leave(self) -> None:
        """End the connection with the next answer, if there is one; called by the server."""
        self._leaving = True
        self._keep_alive = False

    def shutdown(self) -> None:
        """Finish the request that has begun, and close; called by the server."""
        self._stopping = True
        self.leave()
        # A request may be on its way already; closing at once would answer it with a reset.
        self._loop.call_later(self._settings.close_grace_s(), self._grace_is_over)

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
        if head.infer:
            self._call = service.infer(
                model, body, head.json_bytes, self._answer, timeout_ns, origin, account
            )
        else:
            self._call = service.predict(model, body, self._answer, timeout_ns, origin, account)

    def _prepare(self, head: RequestHead, json_bytes: int) -> None:
        """Have what is still to come of a large body written to where it belongs, if it can be."""
        buffer = self._buffer
        binary_bytes = head.content_length - json_bytes
        if binary_bytes < LARGE_BYTES or len(buffer) < json_bytes or self._tried:
            return
        self._tried = True
        text = bytes(memoryview(buffer)[:json_bytes])
        upload = self._upload = self._predictions.prepare(
            head.model, text, binary_bytes, head.timeout_ns, head.account
        )
        if upload is None:
            return
        self._state = _RECEIVING
        if self._receiver is None:
            self._receiver = Receiver(self)
            read_with(self._transport, self._receiver)
        self._receiver.receive_into(upload.memory, memoryview(buffer)[json_bytes:])
        self._buffer = bytearray()
        self._holding.end()

    def arrived(self) -> None:
        """Take a body that is complete in its slot; called by the receiver."""
        upload = self._upload
        assert upload is not None, "the receiver was told where the body goes"
        self._upload = None
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
        # Of what has come, not of what was declared: to declare costs nothing.
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
        else:
            self._answer_unusually(status, body, headers)
        if self._buffer and self._state is _HEAD:
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
            comes_more = self._state is not _HEAD or len(self._buffer) > 0
            self._end()
            if comes_more:
                linger(self._transport, self._loop)
            else:
                self._transport.close()

    def _refuse(self, status: int, text: str) -> None:
        self._keep_alive = False
        body = error_body(text)
        self._count(status, len(body))
        self._answer_unusually(status, body, JSON)

    def _count(self, status: int, size: int = 0) -> None:
        """Count a request that has ended before it was complete."""
        if self._state is _HEAD:
            self._predictions.record_outside(Protocol.HTTP, status)
            self._identify(_NO_HEAD, size)
            return
        head = self._head
        self._predictions.record_outside(self._watch.protocol_of(head), status, head.model)
        self._identify(head, size)

    def _refused_elsewhere(self, status: int) -> bytes:
        """`FallbackProtocol`'s call: it has refused a request; the id that this one gets."""
        self._predictions.record_outside(Protocol.HTTP, status)
        self._identify(_NO_HEAD, 0)
        return self._identity

    def _regulate(self) -> None:
        """Read only as far ahead as there is a use for it."""
        reading = self._writable and not (
            self._state in (_ANSWER, _NEXT) and len(self._buffer) > MAX_WAITING_BYTES
        )
        if reading != self._reading and self._state is not _ENDED:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _close(self) -> None:
        self._end()
        self._transport.close()

    def _end(self) -> None:
        self._state = _ENDED
        self._buffer.clear()
        self._holding.end()
        if self._upload is not None and self._receiver is not None:
            self._receiver.forget()
            self._upload.abandon()
            self._upload = None

    def _grace_is_over(self) -> None:
        # On a busy host this timer may come late, and a loop runs its timers before it reads.
        self._loop.call_later(LAST_LOOK_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._state is _HEAD:
            self._close()

    def _hand_over(self) -> None:
        self._settings.count_hand_over()
        self._server_state.connections.discard(self)
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
