"""Fallback protocol: whole HTTP/1.1 for all but the fast lane, by uvicorn, hardened for a network.

Its errors are JSON, as all others are. A head has a longest size and a longest time, and a
body a longest time. Bytes behind a body are no part of its head. The code that serves a request can
learn that its client has gone.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import error_body
from ringbatch.frontend.codec.request_ids import ID_HEADER
from ringbatch.frontend.http.asgi import Receive
from ringbatch.frontend.http.asgi_scope import (
    BEGAN,
    EXCHANGES,
    NOTHING_YET,
    REFUSED,
    WHOLE,
    Exchanges,
)
from ringbatch.frontend.http.head_framing import HEAD_TOO_LONG, MAX_HEAD_BYTES, MAX_HEADERS
from ringbatch.frontend.http.http10_answers import without_chunks
from ringbatch.frontend.http.lingering_close import linger
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, HEAD_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.stall_clock import StallClock

MAX_PIPELINED: Final = 64
"""Requests of one connection that are read ahead of the first that is not answered."""
_TLS: Final = b"\x16\x03"
"""The begin of a client's first record of TLS."""
_HTTP2: Final = b"PRI * HTTP/2"
_PROXY: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")
"""The begins of the PROXY protocol, in its two versions."""
_OLD_VERSION: Final = "1.0"
_VERSIONS: Final = (_OLD_VERSION, "1.1")
_LINES_TOO_LONG: Final = (
    f"what stands between or behind chunks is longer than {MAX_HEAD_BYTES} bytes"
)
_KEPT: Final = (b"connection", b"keep-alive")
_HEAD_PIECE_BYTES: Final = 1 << 12
"""Bytes of heads parsed at once: a request of 20 bytes becomes objects of 2 KiB."""
_BODY_PIECE_BYTES: Final = 1 << 14
"""Bytes parsed at once while a body is expected, behind which requests may stand."""


class _AnswerTransport:
    """Transport that uvicorn writes an answer to: the connection's, with its own way to end it.

    Args:
        transport: of the connection.
        part: ends it.
    """

    def __init__(self, transport: asyncio.Transport, part: Callable[[], None]) -> None:
        self._write = transport.write
        self._waiting_bytes = transport.get_write_buffer_size
        self._written_bytes = 0
        self.is_closing = transport.is_closing
        self.close = part

    def write(self, data: bytes) -> None:
        """Write a piece of an answer."""
        self._written_bytes += len(data)
        self._write(data)

    def look(self) -> tuple[int, bool]:
        """Return the bytes of answers that the client has taken, and whether others wait."""
        waiting = self._waiting_bytes()
        return self._written_bytes - waiting, waiting > 0


class FallbackProtocol(HttpToolsProtocol):
    """Connection that uvicorn serves, from its first request that is not for the fast lane."""

    # Where uvicorn's types are not to be had, as where this is compiled, mypy would look for these
    # in the methods below, and find them or not by the order that it reads them in.
    parser: HttpRequestParser
    url: bytes

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        close_grace_s: Callable[[], float] = lambda: 0.0,
        refused: Callable[[int], bytes] = lambda _status: b"",
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._refused = refused
        self._close_grace_s = close_grace_s
        self._exchanges = Exchanges()
        self._stall = StallClock()
        self._in_head = False
        self._in_body = False
        self._unanswered = 0
        self._line_bytes = 0
        self._body_bytes = 0
        self._pieces: list[bytes] = []
        self._clock = Clock(self.timeout_keep_alive)
        self._refusal = b""
        self._held = b""
        self._leaving = False
        self._parting = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection; called by the transport."""
        super().connection_made(transport)
        self._answering: Any = _AnswerTransport(transport, self._part)
        self._exchanges.stalled_s = partial(self._stall.seconds, self._answering.look)

    def data_received(self, data: bytes) -> None:
        """Take received bytes; called by the transport."""
        if self._parting:
            return
        data = self._held + data
        self._held = b""
        while data and not self._refusal:
            if self._unanswered >= MAX_PIPELINED:
                self._held = data
                self.flow.pause_reading()
                return
            size = _BODY_PIECE_BYTES if self._in_body else _HEAD_PIECE_BYTES
            self._parse(data[:size])
            data = data[size:]

    def _parse(self, data: bytes) -> None:
        # Whatever ends such lines starts the count again.
        self._line_bytes += len(data)
        try:
            self._feed(data)
            self._take_body()
        except HttpParserError as error:
            self._refuse(400, f"this is not an HTTP/1.1 request{_instead(data, error)}")
        # As long as a head may be the lines before a chunk, and those behind the last one.
        if self._line_bytes > MAX_HEAD_BYTES:
            self._refuse(431, _LINES_TOO_LONG if self._in_body else HEAD_TOO_LONG)

    def _feed(self, data: bytes) -> None:
        """Have the parser read on, past every wish for another protocol."""
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as stop:
                # The parser takes bytes behind such a head for the other protocol's. But the server
                # has not agreed to it (RFC 9110, section 7.8). So they are the body, and are read
                # behind the same head without the wish.
                head = self._head_without_upgrade()
                self.parser = _parser(self)
                self.parser.feed_data(head)
                data = data[stop.args[0] :]
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % line for line in self.headers if line[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        super().connection_lost(exc)
        # The last cycle has it, and this connection that: the collector alone would free them.
        self._answering.close = self.transport.close
        self._exchanges.end()

    def tick(self) -> None:
        """Count a second; called by the server."""
        self._stall.tick(*self._answering.look())
        phase = self.phase()
        taking = phase is Phase.TAKING
        moved_bytes = -self.transport.get_write_buffer_size() if taking else self._body_bytes
        if not self._clock.is_over(phase, moved_bytes):
            return
        if phase is Phase.HEAD:
            self._refuse(408, HEAD_TOO_SLOW)
        elif phase is Phase.BODY:
            self._refuse(408, BODY_TOO_SLOW)
        elif taking:
            self.transport.abort()
        else:
            self.transport.close()

    def phase(self) -> Phase:
        """Return the phase of the connection."""
        if self.flow.write_paused or self._is_parting():
            return Phase.TAKING
        if self._unanswered and (self.flow.read_paused or not (self._in_head or self._in_body)):
            return Phase.ANSWER
        if self._in_head:
            return Phase.HEAD
        if self._in_body:
            return Phase.UNWANTED if self.cycle.response_complete else Phase.BODY
        return Phase.IDLE

    def on_message_begin(self) -> None:
        """Begin a request; called by the parser."""
        super().on_message_begin()
        self.scope[EXCHANGES] = self._exchanges  # type: ignore[typeddict-unknown-key]
        self.scope[BEGAN] = time.monotonic_ns()  # type: ignore[typeddict-unknown-key]
        self.scope[WHOLE] = False  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        self._line_bytes = self._clock.age_s = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line of the head, or of trailers behind a chunked body; called by the parser."""
        # Nothing here knows a trailer, and to take one for a header would let it say who asks
        # (RFC 9110, section 6.5.1).
        if self._in_body:
            return
        if len(self.headers) == MAX_HEADERS:
            self._stop(431, f"the head has more than {MAX_HEADERS} lines")
        # The parser leaves the blanks behind a value, which are no part of it.
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Take the whole head; called by the parser."""
        if self._head_bytes() > MAX_HEAD_BYTES:
            self._stop(431, HEAD_TOO_LONG)
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            self._stop(505, f"HTTP/{version} is not supported; send HTTP/1.1")
        if self.parser.get_method() == b"CONNECT":
            self._stop(400, "this is not an HTTP/1.1 request to a server, but one to a proxy")
        if not self.url.startswith(b"/"):
            self._read_target()
        self._look_for_two_opinions(version)
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        self.cycle.transport = self._answering
        if version == _OLD_VERSION:
            # It would take a word to go on for the answer (RFC 9110, section 10.1.1).
            self.cycle.waiting_for_100_continue = False
            # Such a client must hear that the connection stays, as it has asked.
            self.cycle.keep_alive = self.parser.should_keep_alive() and not self._leaving
            if self.cycle.keep_alive:
                self.cycle.default_headers = [*self.cycle.default_headers, _KEPT]
            cycle: Any = self.cycle
            cycle.send = without_chunks(cycle, self.server_state.default_headers)
        elif self.cycle.waiting_for_100_continue:
            self.cycle.receive = _behind_head(self.cycle)  # type: ignore[method-assign,assignment]
        self.cycle.keep_alive &= not self._leaving
        self._in_head, self._in_body = False, True
        self._line_bytes = 0
        self._unanswered += 1
        # Falcon waits for something of the body before it looks at the head, but a client may wait
        # for the refusal of a body before it sends one.
        self.cycle.message_event.set()

    def _head_bytes(self) -> int:
        """Return the length of the head with a single blank in each line."""
        lines = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
        return len(b"%b %b HTTP/1.1\r\n\r\n" % (self.parser.get_method(), self.url)) + lines

    def _read_target(self) -> None:
        """Read a target that is more than a path, or less (RFC 9112, section 3.2)."""
        if self.url.startswith(b"*"):
            if self.url != b"*" or self.parser.get_method() != b"OPTIONS":
                self._stop(400, "this is not an HTTP/1.1 request: only OPTIONS has a target *")
        elif not (parsed := parse_url(self.url)).path:
            self.url = b"/?" + parsed.query if parsed.query else b"/"

    def _look_for_two_opinions(self, version: str) -> None:
        """Refuse heads that a proxy may read otherwise (RFC 9112, sections 3.2 and 6.1).

        The two may differ in the host of a request and in the end of its body.
        """
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (not hosts and version != _OLD_VERSION):
            self._stop(400, f"this is not an HTTP/1.1 request: it has {hosts} Host lines, not one")
        if version == _OLD_VERSION and b"transfer-encoding" in names:
            self._stop(400, "there is no Transfer-Encoding in HTTP/1.0; send HTTP/1.1")
        codings = (value for name, value in self.headers if name == b"transfer-encoding")
        if any(coding.strip().lower() != b"chunked" for coding in codings):
            self._stop(501, "Transfer-Encoding can be chunked here, and nothing else")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; called by the parser."""
        self._line_bytes = 0
        self._pieces.append(body)

    def _take_body(self) -> None:
        """Pass on the pieces of the body together; a chunk may be as short as a byte."""
        if self._pieces:
            body = b"".join(self._pieces)
            self._pieces.clear()
            self._body_bytes += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request; called by the parser."""
        self._take_body()
        if self.parser.should_upgrade():
            return
        self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]
        self._in_body = False
        self._line_bytes = 0
        # The parser alone has read the trailers, and after some of them reads nothing more.
        self.cycle.keep_alive &= self.parser.should_keep_alive()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on after an answer; called by the cycle."""
        self._unanswered -= 1
        if self._parting:
            return
        super().on_response_complete()
        # `tick` sees to every phase. The base class's timer would keep a connection that is reset.
        self._unset_keepalive_if_required()
        if self._refusal and not self._unanswered:
            self._send_refusal()
        elif self._held and self._unanswered < MAX_PIPELINED:
            self.loop.call_soon(self._go_on)
        elif self._held:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        if self._held and not self.transport.is_closing():
            self.data_received(b"")

    def shutdown(self) -> None:
        """Finish the requests that have begun, and close; called by the server."""
        grace_s = self._close_grace_s()
        if grace_s and (self.cycle is None or self.cycle.response_complete):
            self._leaving = True
            self.loop.call_later(grace_s, self._grace_is_over)
        else:
            super().shutdown()

    def _grace_is_over(self) -> None:
        if not self._is_parting():
            super().shutdown()

    def forget(self) -> None:
        """Ignore changed keys, as every request is checked here; called by the server."""

    def leave(self) -> None:
        """End the connection with the next answer, if there is one; called by the server."""
        self._leaving = True
        # The head of an answer that has begun says already that the connection stays.
        if self._unanswered and not self.cycle.response_started:
            self.cycle.keep_alive = False
            self.cycle.default_headers = self.server_state.default_headers

    def _stop(self, status: int, text: str) -> NoReturn:
        self._refuse(status, text)
        raise HttpParserError("nothing of this request is wanted")

    def _refuse(self, status: int, text: str) -> None:
        """Answer with an error and close, once the requests before are answered."""
        if self._refusal:
            return
        if self._in_body:
            if self.cycle.response_started:
                self.transport.close()
                return
            self._give_up_newest()
        self._in_head = self._in_body = False
        request_id = self._refused(status)
        body = error_body(text)
        lines = [
            STATUS_LINE[status],
            *(b"%b: %b\r\n" % header for header in self.server_state.default_headers),
            b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body),
            b"%b: %b\r\n" % (ID_HEADER.encode(), request_id) if request_id else b"",
            b"connection: close\r\n\r\n",
            body,
        ]
        self._refusal = b"".join(lines)
        self.flow.pause_reading()
        if not self._unanswered:
            self._send_refusal()

    def _give_up_newest(self) -> None:
        """Give up the newest request: its body will never be whole, so its task must not answer."""
        self._unanswered -= 1
        self.cycle.scope[REFUSED] = True  # type: ignore[typeddict-unknown-key]
        self.cycle.response_complete = self.cycle.disconnected = True
        self.cycle.waiting_for_100_continue = False
        self.cycle.message_event.set()
        if self.pipeline:
            self.pipeline.popleft()

    def _send_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._part()

    def _part(self) -> None:
        """End the connection: its last answer is written."""
        if self._is_parting():
            return
        if self._refusal or self._in_head or self._in_body or self._unanswered > 1:
            self._parting = True
            linger(self.transport, self.loop)
        else:
            self.transport.close()

    def _is_parting(self) -> bool:
        return self._parting or self.transport.is_closing()


def _behind_head(cycle: Any) -> Receive:
    """Return a `receive` that asks the client for the body only at the second call.

    The application may decide by the head, so the first call returns nothing of the body.
    """
    receive, asked_before = cycle.receive, False

    async def received() -> Mapping[str, Any]:
        nonlocal asked_before
        first, asked_before = not asked_before, True
        if first and cycle.more_body and not (cycle.body or cycle.disconnected):
            return NOTHING_YET
        found: Mapping[str, Any] = await receive()
        return found

    return received


def _parser(protocol: FallbackProtocol) -> HttpRequestParser:
    """Make a parser as the base class makes its first one."""
    parser = HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _instead(data: bytes, error: HttpParserError) -> str:
    """Return what bytes are that the parser has refused, to follow "not an HTTP/1.1 request".

    Args:
        data: the bytes.
        error: the parser's, which quotes nothing of them.
    """
    if data.startswith(_TLS):
        return ", but TLS; this port is served without, at http://"
    if data.startswith(_HTTP2):
        return ", but HTTP/2, which is served with [server] http2 = true"
    if data.startswith(_PROXY):
        return (
            ", but the PROXY protocol, which is not served; leave out send-proxy, and have the "
            "proxy send X-Forwarded-For"
        )
    return f": {error}"
