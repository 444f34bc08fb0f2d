"""The fast lane: prediction requests from the socket to the ring with nothing in between.

One object for each connection. It takes the requests that `ringbatch.frontend.http.head`
recognises, answers them in the order they came, one at a time, and hands the connection with every
byte not yet answered to `FallbackProtocol` at the first request that is not of its kind; from there
on Falcon serves that connection. So everything else about HTTP is written once, elsewhere.

There are no timers here. `tick` is called once a second by the server for every connection.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import (
    JSON,
    Answer,
    Headers,
    error_body,
    outcome,
    status_of,
)
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.content_coding import (
    MIN_ENCODED_BYTES,
    SLOW_BYTES,
    coding_headers,
    encoded,
)
from ringbatch.frontend.http.fallback import MAX_HEAD_BYTES, FallbackProtocol
from ringbatch.frontend.http.fast_lane_states import PHASE_OF, State
from ringbatch.frontend.http.head import END, START, HeadReader, RequestHead
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, HEAD_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.receiver import Receiver
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.frontend.request.calls import Body, Call, Predictions, Upload
from ringbatch.shm.errors import Overloaded
from ringbatch.shm.tallies import CLIENT_GONE, Protocol

MAX_WAITING_BYTES: Final = 1 << 16
"""How much is read ahead of the request that is being answered."""
CLOSE_GRACE_S: Final = 0.1
"""How long a graceful stop waits for a request that is on its way on an idle connection."""
HANDOVER_GRACE_S: Final = 5.0
"""The same where another engine serves already, so that nobody waits for the stop."""
LAST_LOOK_S: Final = 0.001
"""After that, so that the loop reads once more whatever has come."""
_HEAD: Final = State.HEAD
_BODY: Final = State.BODY
_RECEIVING: Final = State.RECEIVING
_ANSWER: Final = State.ANSWER
_ENDED: Final = State.ENDED
_NO_TEXT: Final = b"\0"
_NO_HEAD: Final = RequestHead("", 0, 0, 0, keep_alive=True)
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_LENGTHS: Final = tuple(b"%d\r\n\r\n" % size for size in range(MIN_ENCODED_BYTES))


@dataclass(slots=True)
class FastLaneSettings:
    """What all connections of a process share.

    Attributes:
        predictions: what takes requests.
        heads: reads the heads of requests.
        response_heads: writes those of answers.
        idle_timeout_s: how long a connection without a request is kept.
        count_hand_over: counts a connection that goes to Falcon.
        stopping: whether the server is; connections may still come that were accepted before.
        leaving: whether clients are to go elsewhere, because the server is to stop.
        close_grace_s: how long a graceful stop waits for a request on an idle connection.
        budget: for the bodies that are gathered.
    """

    predictions: Predictions
    heads: HeadReader
    response_heads: ResponseHeads
    idle_timeout_s: float
    count_hand_over: Callable[[], None]
    stopping: Callable[[], bool]
    leaving: Callable[[], bool]
    close_grace_s: Callable[[], float]
    budget: BodyBudget


class FastLane(asyncio.Protocol):
    """One connection, until it is handed over.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, _loop: as uvicorn gives them to its protocols.
    """

    __slots__ = (
        "_app_state",
        "_buffer",
        "_call",
        "_clock",
        "_coding",
        "_config",
        "_head",
        "_head_text",
        "_keep_alive",
        "_leaving",
        "_loop",
        "_predictions",
        "_reading",
        "_receiver",
        "_request",
        "_reserved_bytes",
        "_server_state",
        "_settings",
        "_state",
        "_stopping",
        "_transport",
        "_tried",
        "_upload",
        "_usual_head",
        "_writable",
        "_write",
    )

    _transport: asyncio.Transport
    _write: Callable[[bytes], None]

    def __init__(
        self,
        settings: FastLaneSettings,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._settings = settings
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._predictions = settings.predictions
        self._usual_head = settings.response_heads.usual
        self._head_text = _NO_TEXT
        self._head = _NO_HEAD
        self._coding: str | None = None
        self._state = _HEAD
        self._request = _NO_HEAD
        """Whose body is coming."""
        self._tried = False
        self._buffer = bytearray()
        self._call: Call | None = None
        self._upload: Upload | None = None
        self._receiver: Receiver | None = None
        self._keep_alive = True
        self._leaving = False
        self._stopping = False
        self._reading = True
        self._writable = True
        self._clock = Clock(settings.idle_timeout_s)
        self._reserved_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport's call: the connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self._write = self._transport.write
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        if self._settings.stopping():
            self.shutdown()
        elif self._settings.leaving():
            self.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is closed, by whomever."""
        self._server_state.connections.discard(self)
        if self._state is _BODY or self._state is _RECEIVING:
            self._count(CLIENT_GONE)
        self._state = _ENDED
        self._buffer.clear()
        for unfinished in (self._call, self._upload):
            if unfinished is not None:
                unfinished.abandon()
        self._call = self._upload = None
        self._free()

    def data_received(self, data: bytes) -> None:
        """The transport's call: bytes have come."""
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
            self._buffer += data
            self._advance()
            self._regulate()

    def pause_writing(self) -> None:
        """The transport's call: the client does not read its answers."""
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        """The transport's call: the client reads again."""
        self._writable = True
        self._advance()
        self._regulate()

    def tick(self) -> None:
        """The server's call: another second has passed."""
        phase = self.phase()
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
        """What the connection is about."""
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
        """The server's call: what was said of the head that came last may not hold any more."""
        self._head_text, self._head = _NO_TEXT, _NO_HEAD

    def leave(self) -> None:
        """The server's call: with the next answer, if there is one, the connection ends."""
        self._leaving = True
        self._keep_alive = False

    def shutdown(self) -> None:
        """The server's call: finish what has begun, and close."""
        self._stopping = True
        self.leave()
        # A request may be on its way already; closing at once would answer it with a reset.
        self._loop.call_later(self._settings.close_grace_s(), self._grace_is_over)

    def _advance(self) -> None:
        """Serve what the buffer holds, as far as it goes."""
        while self._buffer and self._writable:
            if self._state is _HEAD:
                self._read_head()
            if self._state is not _BODY:
                return
            head = self._request
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
            if self._reserved_bytes:
                self._free()
            self._begin(head, body)

    def _begin(self, head: RequestHead, body: Body) -> None:
        self._state = _ANSWER
        if head.infer:
            self._call = self._predictions.infer(
                head.model, body, head.json_bytes, self._answer, head.timeout_ns
            )
        else:
            self._call = self._predictions.predict(
                head.model, body, self._answer, head.timeout_ns, head.origin
            )

    def _prepare(self, head: RequestHead, json_bytes: int) -> None:
        """Have what is still to come of a large body written to where it belongs, if it can be."""
        buffer = self._buffer
        binary_bytes = head.content_length - json_bytes
        if binary_bytes < LARGE_BYTES or len(buffer) < json_bytes or self._tried:
            return
        self._tried = True
        text = bytes(memoryview(buffer)[:json_bytes])
        upload = self._predictions.prepare(head.model, text, binary_bytes, head.timeout_ns)
        self._upload = upload
        if upload is None:
            return
        self._state = _RECEIVING
        if self._receiver is None:
            self._receiver = Receiver(self)
            self._read_with(self._receiver)
        self._receiver.receive_into(upload.memory, memoryview(buffer)[json_bytes:])
        self._buffer = bytearray()
        self._free()

    def arrived(self) -> None:
        """The receiver's call: the body is where it belongs."""
        upload = self._upload
        assert upload is not None, "the receiver was told where the body goes"
        self._upload = None
        self._state = _ANSWER
        self._call = upload.arrived(self._answer)

    def _read_with(self, protocol: asyncio.BaseProtocol) -> None:
        # uvloop asks for the kind of protocol when reading starts.
        if self._reading:
            self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        if self._reading:
            self._transport.resume_reading()

    def _read_head(self) -> None:
        buffer = self._buffer
        end = buffer.find(END, 0, MAX_HEAD_BYTES)
        if end < 0:
            # Where it can be none of ours any more, httptools may say at once what is wrong.
            if not buffer.startswith(START[: len(buffer)]) or _BARE_LF.search(buffer):
                self._hand_over()
            elif len(buffer) >= MAX_HEAD_BYTES:
                self._refuse(431, f"the head is longer than {MAX_HEAD_BYTES} bytes")
            return
        text = bytes(memoryview(buffer)[: end + len(END)])
        head = self._settings.heads.read(text)
        if head is None:
            self._hand_over()
            return
        del buffer[: len(text)]
        self._state = _BODY
        self._request = head
        self._tried = False
        self._head_text, self._head = text, head
        self._coding = head.coding
        self._keep_alive = head.keep_alive and not self._leaving

    def _reserve(self, size: int) -> None:
        # Of what has come, not of what was declared: to declare costs nothing.
        try:
            self._settings.budget.take(size - self._reserved_bytes)
        except Overloaded as error:
            self._keep_alive = False
            self._count(status_of(error))
            self._answer_unusually(*outcome(error))
        else:
            self._reserved_bytes = size

    def _free(self) -> None:
        self._settings.budget.give(self._reserved_bytes)
        self._reserved_bytes = 0

    def _answer(self, answer: Answer) -> None:
        status, body, headers = answer
        self._state = _HEAD
        self._call = None
        self._clock.age_s = 0
        size = len(body)
        if headers is JSON and status == 200 and self._keep_alive and size < MIN_ENCODED_BYTES:
            self._write(self._usual_head() + _LENGTHS[size] + body)
        elif self._coding and status == 200 and size >= MIN_ENCODED_BYTES:
            self._encode(self._coding, body, headers)
        elif status == 200 and self._keep_alive:
            head = self._settings.response_heads.success(headers)
            self._write(b"%b%d\r\n\r\n%b" % (head, size, body))
        else:
            self._answer_unusually(status, body, headers)
        if self._buffer:
            # Not at once: `_advance` itself may be what called.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._state is not _ENDED:
            self._advance()
            self._regulate()

    def _encode(self, coding: str, body: bytes, headers: Headers) -> None:
        headers = (*headers, *coding_headers(coding))
        if len(body) < SLOW_BYTES:
            self._answer_unusually(200, encoded(body, coding), headers)
            return
        self._state = _ANSWER
        encoding = self._loop.run_in_executor(None, encoded, body, coding)
        encoding.add_done_callback(partial(self._encoded, headers))

    def _encoded(self, headers: Headers, encoding: asyncio.Future[bytes]) -> None:
        if self._state is _ENDED:
            return
        self._state = _HEAD
        self._clock.age_s = 0
        self._answer_unusually(200, encoding.result(), headers)
        self._go_on()

    def _answer_unusually(self, status: int, body: bytes, headers: Headers) -> None:
        head = self._settings.response_heads.other(status, headers, keep_alive=self._keep_alive)
        self._write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        if not self._keep_alive:
            self._close()

    def _refuse(self, status: int, text: str) -> None:
        self._keep_alive = False
        self._count(status)
        self._answer_unusually(status, error_body(text), JSON)

    def _count(self, status: int) -> None:
        """The request that is coming has ended before it was complete."""
        if self._state is _HEAD:
            self._predictions.ended_outside(Protocol.HTTP, status)
            return
        head = self._request
        protocol = Protocol.V1
        if head.infer:
            protocol = Protocol.V2 if head.json_bytes is None else Protocol.V2_BINARY
        self._predictions.ended_outside(protocol, status, head.model)

    def _regulate(self) -> None:
        """Read only as far ahead as there is a use for it."""
        reading = self._writable and not (
            self._state is _ANSWER and len(self._buffer) > MAX_WAITING_BYTES
        )
        if reading != self._reading and self._state is not _ENDED:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _close(self) -> None:
        self._state = _ENDED
        self._buffer.clear()
        self._transport.close()

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
        data = bytes(self._buffer)
        self._buffer.clear()
        protocol = FallbackProtocol(
            self._config,
            self._server_state,
            self._app_state,
            self._loop,
            close_grace_s=self._settings.close_grace_s,
            count=partial(self._predictions.ended_outside, Protocol.HTTP),
        )
        protocol.connection_made(self._transport)
        self._read_with(protocol)
        if not self._reading:
            self._transport.resume_reading()
        protocol.data_received(data)
        if self._stopping:
            protocol.shutdown()
        elif self._leaving:
            protocol.leave()
