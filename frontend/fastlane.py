"""The fast lane: prediction requests from the socket to the ring with nothing in between.

One object for each connection. It takes the requests that `ringbatch.frontend.head` recognises,
answers them in the order they came, one at a time, and hands the connection with every byte not
yet answered to `AnyHttp` at the first request that is not of its kind; from there on Falcon serves
that connection. So everything else about HTTP is written once, elsewhere.

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

from ringbatch.frontend.anyhttp import BODY_TIMEOUT_S, HEAD_TIMEOUT_S, MAX_HEAD_BYTES, AnyHttp
from ringbatch.frontend.arrival import LARGE_BYTES, Arrival
from ringbatch.frontend.body_budget import BodyBudget
from ringbatch.frontend.calls import Body, Call, Reply
from ringbatch.frontend.content_coding import (
    MIN_ENCODED_BYTES,
    SLOW_BYTES,
    coding_headers,
    encoded,
)
from ringbatch.frontend.head import END, START, HeadReader, Verdict
from ringbatch.frontend.outcome import JSON, Headers, error_body, outcome
from ringbatch.frontend.receiver import Receiver
from ringbatch.frontend.response_heads import ResponseHeads
from ringbatch.frontend.slow_reader import SlowReader
from ringbatch.shm.errors import Overloaded

MAX_WAITING_BYTES: Final = 1 << 16
"""How much is read ahead of the request that is being answered."""
CLOSE_GRACE_S: Final = 0.1
"""How long a graceful stop waits for a request that is on its way on an idle connection."""
LAST_LOOK_S: Final = 0.001
"""After that, so that the loop reads once more whatever has come."""
_NO_HEAD: Final = b"\0"
_NO_VERDICT: Final = Verdict("", 0, 0, 0, keep_alive=True)
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_LENGTHS: Final = tuple(b"%d\r\n\r\n" % size for size in range(MIN_ENCODED_BYTES))

Predict = Callable[[str, Body, Reply, int, bytes | None], Call | None]
Infer = Callable[[str, Body, int | None, Reply, int], Call | None]
Expect = Callable[[str, bytes, int, int], Arrival | None]


@dataclass(slots=True)
class FastLaneSettings:
    """What all connections of a process share.

    Attributes:
        predict: `Service.predict`.
        infer: `Service.infer`.
        expect: `Service.expect`.
        heads: reads the heads of requests.
        response_heads: writes those of answers.
        idle_timeout_s: how long a connection without a request is kept.
        handed_over: told of every connection that goes to Falcon.
        stopping: whether the server is; connections may still come that were accepted before.
        budget: for the bodies that are gathered.
    """

    predict: Predict
    infer: Infer
    expect: Expect
    heads: HeadReader
    response_heads: ResponseHeads
    idle_timeout_s: float
    handed_over: Callable[[], None]
    stopping: Callable[[], bool]
    budget: BodyBudget


class FastLane(asyncio.Protocol):
    """One connection, until it is handed over.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, _loop: as uvicorn gives them to its protocols.
    """

    __slots__ = (
        "_age_s",
        "_app_state",
        "_arrival",
        "_buffer",
        "_busy",
        "_call",
        "_closing",
        "_config",
        "_head",
        "_infer",
        "_keep_alive",
        "_loop",
        "_predict",
        "_reading",
        "_receiver",
        "_reserved_bytes",
        "_server_state",
        "_settings",
        "_slow_reader",
        "_stopping",
        "_transport",
        "_tried",
        "_usual_head",
        "_verdict",
        "_wanted",
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
        self._predict = settings.predict
        self._infer = settings.infer
        self._usual_head = settings.response_heads.usual
        self._head = _NO_HEAD
        self._verdict = _NO_VERDICT
        self._wanted: Verdict | None = None
        self._tried = False
        self._buffer = bytearray()
        self._call: Call | None = None
        self._arrival: Arrival | None = None
        self._receiver: Receiver | None = None
        self._busy = False
        self._keep_alive = True
        self._stopping = False
        self._closing = False
        self._reading = True
        self._writable = True
        self._age_s = 0
        self._reserved_bytes = 0
        self._slow_reader: SlowReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport's call: the connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self._write = self._transport.write
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        if self._settings.stopping():
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is closed, by whomever."""
        self._server_state.connections.discard(self)
        self._closing = True
        self._buffer.clear()
        for unfinished in (self._call, self._arrival):
            if unfinished is not None:
                unfinished.abandon()
        self._call = self._arrival = None
        self._free()

    def data_received(self, data: bytes) -> None:
        """The transport's call: bytes have come."""
        # The usual case: one whole request whose head is that of the one before.
        verdict = self._verdict
        if (
            not self._busy
            and not self._buffer
            and len(data) == verdict.request_bytes
            and data.startswith(self._head)
            and self._wanted is None
            and self._writable
        ):
            self._begin(verdict, data[verdict.head_bytes :])
        elif not self._closing:
            if not self._buffer and self._wanted is None:
                self._age_s = 0
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
        self._slow_reader = None
        self._advance()
        self._regulate()

    def tick(self) -> None:
        """The server's call: another second has passed."""
        if self._closing or not self._writable:
            self._watch_reader()
            return
        if self._busy:
            return
        self._age_s += 1
        if self._wanted is not None:
            if self._age_s > BODY_TIMEOUT_S:
                self._refuse(408, f"the body did not come within {BODY_TIMEOUT_S} s")
        elif self._buffer:
            if self._age_s > HEAD_TIMEOUT_S:
                self._refuse(408, f"the head did not come within {HEAD_TIMEOUT_S} s")
        elif self._age_s > self._settings.idle_timeout_s:
            self._close()

    def forget(self) -> None:
        """The server's call: what was said of the head that came last may not hold any more."""
        self._head = _NO_HEAD

    def shutdown(self) -> None:
        """The server's call: finish what has begun, and close."""
        self._stopping = True
        self._keep_alive = False
        # A request may be on its way already; closing at once would answer it with a reset.
        self._loop.call_later(CLOSE_GRACE_S, self._grace_is_over)

    def _advance(self) -> None:
        """Serve what the buffer holds, as far as it goes."""
        while self._buffer and not self._busy and self._writable:
            if self._wanted is None:
                self._read_head()
            verdict = self._wanted
            if verdict is None:
                return
            if len(self._buffer) < verdict.content_length:
                if verdict.json_bytes is not None:
                    self._expect(verdict, verdict.json_bytes)
                if verdict.content_length > LARGE_BYTES:
                    self._reserve(len(self._buffer))
                return
            body: Body
            if len(self._buffer) == verdict.content_length:
                body, self._buffer = self._buffer, bytearray()
            else:
                body = bytes(memoryview(self._buffer)[: verdict.content_length])
                del self._buffer[: verdict.content_length]
            self._wanted = None
            if self._reserved_bytes:
                self._free()
            self._begin(verdict, body)

    def _begin(self, verdict: Verdict, body: Body) -> None:
        self._busy = True
        if verdict.infer:
            self._call = self._infer(
                verdict.model, body, verdict.json_bytes, self._answer, verdict.timeout_ns
            )
        else:
            self._call = self._predict(
                verdict.model, body, self._answer, verdict.timeout_ns, verdict.origin
            )

    def _expect(self, verdict: Verdict, json_bytes: int) -> None:
        """Have what is still to come of a large body written to where it belongs, if it can be."""
        buffer = self._buffer
        binary_bytes = verdict.content_length - json_bytes
        if binary_bytes < LARGE_BYTES or len(buffer) < json_bytes or self._tried:
            return
        self._tried = True
        text = bytes(memoryview(buffer)[:json_bytes])
        self._arrival = self._settings.expect(verdict.model, text, binary_bytes, verdict.timeout_ns)
        if self._arrival is None:
            return
        if self._receiver is None:
            self._receiver = Receiver(self)
            self._read_with(self._receiver)
        self._receiver.expect(self._arrival.memory, memoryview(buffer)[json_bytes:])
        self._buffer = bytearray()
        self._free()

    def arrived(self) -> None:
        """The receiver's call: the body is where it belongs."""
        arrival = self._arrival
        assert arrival is not None, "the receiver was told what to expect"
        self._arrival = None
        self._wanted = None
        self._busy = True
        self._call = arrival.arrived(self._answer)

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
        head = bytes(memoryview(buffer)[: end + len(END)])
        verdict = self._settings.heads.verdict(head)
        if verdict is None:
            self._hand_over()
            return
        del buffer[: len(head)]
        self._wanted = self._verdict = verdict
        self._tried = False
        self._head = head
        self._keep_alive = verdict.keep_alive and not self._stopping
        self._age_s = 0

    def _reserve(self, size: int) -> None:
        # Of what has come, not of what was announced: to announce costs nothing.
        try:
            self._settings.budget.take(size - self._reserved_bytes)
        except Overloaded as error:
            self._keep_alive = False
            self._answer_unusually(*outcome(error))
        else:
            self._reserved_bytes = size

    def _free(self) -> None:
        self._settings.budget.give(self._reserved_bytes)
        self._reserved_bytes = 0

    def _answer(self, status: int, body: bytes, headers: Headers) -> None:
        self._busy = False
        self._call = None
        self._age_s = 0
        size = len(body)
        if headers is JSON and status == 200 and self._keep_alive and size < MIN_ENCODED_BYTES:
            self._write(self._usual_head() + _LENGTHS[size] + body)
        elif self._verdict.coding and status == 200 and size >= MIN_ENCODED_BYTES:
            self._encode(self._verdict.coding, body, headers)
        elif status == 200 and self._keep_alive and not self._closing:
            head = self._settings.response_heads.success(headers)
            self._write(b"%b%d\r\n\r\n%b" % (head, size, body))
        else:
            self._answer_unusually(status, body, headers)
        if self._buffer:
            # Not at once: `_advance` itself may be what called.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._closing:
            self._advance()
            self._regulate()

    def _encode(self, coding: str, body: bytes, headers: Headers) -> None:
        headers = (*headers, *coding_headers(coding))
        if len(body) < SLOW_BYTES:
            self._answer_unusually(200, encoded(body, coding), headers)
            return
        self._busy = True
        encoding = self._loop.run_in_executor(None, encoded, body, coding)
        encoding.add_done_callback(partial(self._encoded, headers))

    def _encoded(self, headers: Headers, encoding: asyncio.Future[bytes]) -> None:
        self._busy = False
        self._age_s = 0
        self._answer_unusually(200, encoding.result(), headers)
        self._go_on()

    def _answer_unusually(self, status: int, body: bytes, headers: Headers) -> None:
        if self._closing:
            return
        head = self._settings.response_heads.other(status, headers, keep_alive=self._keep_alive)
        self._write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        if not self._keep_alive:
            self._close()

    def _refuse(self, status: int, text: str) -> None:
        self._keep_alive = False
        self._answer_unusually(status, error_body(text), JSON)

    def _regulate(self) -> None:
        """Read only as far ahead as there is a use for it."""
        reading = self._writable and not (self._busy and len(self._buffer) > MAX_WAITING_BYTES)
        if reading != self._reading and not self._closing:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _watch_reader(self) -> None:
        if self._slow_reader is None:
            self._slow_reader = SlowReader()
        if self._slow_reader.is_gone(self._transport.get_write_buffer_size()):
            self._transport.abort()

    def _close(self) -> None:
        self._closing = True
        self._buffer.clear()
        self._transport.close()

    def _grace_is_over(self) -> None:
        # On a busy host this timer may come late, and a loop runs its timers before it reads.
        self._loop.call_later(LAST_LOOK_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self._busy and self._wanted is None and not self._closing:
            self._close()

    def _hand_over(self) -> None:
        self._settings.handed_over()
        self._server_state.connections.discard(self)
        self._closing = True
        data = bytes(self._buffer)
        self._buffer.clear()
        protocol = AnyHttp(self._config, self._server_state, self._app_state, self._loop)
        protocol.connection_made(self._transport)
        self._read_with(protocol)
        if not self._reading:
            self._transport.resume_reading()
        protocol.data_received(data)
        if self._stopping:
            protocol.shutdown()
