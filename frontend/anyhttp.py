"""Whole HTTP/1.1, for everything that is not for the fast lane: uvicorn's protocol, and what it
lacks at the edge of a network.

Its errors are JSON here, as all others are; a head has a longest size and a longest time, and a
body a longest time; and whoever serves a request can learn that its client has gone.
"""

import asyncio
import sys
from typing import Any, Final, Protocol

from httptools import HttpParserError
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from ringbatch.frontend.outcome import error_body
from ringbatch.frontend.slow_reader import SlowReader

MAX_HEAD_BYTES: Final = 1 << 16
HEAD_TIMEOUT_S: Final = 10
BODY_TIMEOUT_S: Final = 30
"""From the end of the head to the end of the body."""
MAX_PIPELINED: Final = 64
"""Requests of one connection that are read ahead of the first that is not answered."""
EXCHANGES: Final = "ringbatch.exchanges"
"""The key in an ASGI scope under which the connection's `Exchange` objects belong."""

_VERSIONS: Final = ("1.0", "1.1")
_HEAD_PIECE_BYTES: Final = 1 << 12
"""Parsed at once: a request of 20 bytes becomes objects of 2 KiB."""
_BODY_PIECE_BYTES: Final = 1 << 14
"""The same while a body is expected, behind which requests may stand."""


class Exchange(Protocol):
    """A request that is being served."""

    def gone(self) -> None:
        """The client has closed the connection."""


class AnyHttp(HttpToolsProtocol):
    """One connection, from the first request that is not for the fast lane."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._exchanges: set[Exchange] = set()
        self._in_head = False
        self._in_body = False
        self._unanswered = 0
        self._head_bytes = 0
        self._age_s = 0
        self._refusal = b""
        self._held = b""
        self._upgrades = False
        self._slow_reader: SlowReader | None = None

    def data_received(self, data: bytes) -> None:
        """The transport's call: bytes have come."""
        data = self._held + data
        self._held = b""
        while data and not self._refusal:
            if self._unanswered >= MAX_PIPELINED:
                self._held = data
                self.flow.pause_reading()
                return
            size = _BODY_PIECE_BYTES if self._in_body else _HEAD_PIECE_BYTES
            self._parse(data[:size])
            data = b"" if self._upgrades else data[size:]

    def _parse(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data) if was_in_head else 0
            if max(self._head_bytes, len(self.url)) > MAX_HEAD_BYTES:
                self._refuse(431, f"the head is longer than {MAX_HEAD_BYTES} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is closed, by whomever."""
        super().connection_lost(exc)
        for exchange in list(self._exchanges):
            exchange.gone()

    def tick(self) -> None:
        """The server's call: another second has passed."""
        if self.flow.write_paused or self.transport.is_closing():
            if self._slow_reader is None:
                self._slow_reader = SlowReader()
            if self._slow_reader.is_gone(self.transport.get_write_buffer_size()):
                self.transport.abort()
            return
        self._slow_reader = None
        self._age_s += 1
        if self._in_head and self._age_s > HEAD_TIMEOUT_S:
            self._refuse(408, f"the head did not come within {HEAD_TIMEOUT_S} s")
        elif self._in_body and self._age_s > BODY_TIMEOUT_S:
            self._refuse(408, f"the body did not come within {BODY_TIMEOUT_S} s")

    def on_message_begin(self) -> None:
        """The parser's call: a request begins."""
        super().on_message_begin()
        self.scope[EXCHANGES] = self._exchanges  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        self._head_bytes = self._age_s = 0

    def on_headers_complete(self) -> None:
        """The parser's call: its head is there."""
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            self._refuse(505, f"HTTP/{version} is not supported; send HTTP/1.1")
            raise HttpParserError("nothing of this request is wanted")
        super().on_headers_complete()
        self._in_head, self._in_body = False, True
        self._age_s = 0
        self._unanswered += 1
        # Falcon waits for something of the body before it looks at the head, but a client may wait
        # for the refusal of a body before it sends one.
        self.cycle.message_event.set()
        if self.parser.should_upgrade():
            # What follows such a head is another protocol's, or nobody knows whose.
            self.cycle.keep_alive = False
            self._upgrades = True

    def on_message_complete(self) -> None:
        """The parser's call: all of it is there."""
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The cycle's call: the request is answered."""
        self._unanswered -= 1
        super().on_response_complete()
        if self._refusal and not self._unanswered:
            self._send_refusal()
        elif self._held and self._unanswered < MAX_PIPELINED:
            self.loop.call_soon(self._go_on)
        elif self._held:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        if self._held and not self.transport.is_closing():
            self.data_received(b"")

    def forget(self) -> None:
        """The server's call: the keys are others now; here every request is looked at anyway."""

    def send_400_response(self, msg: str) -> None:
        """The base class's call, from where it catches what the parser raised."""
        error = sys.exception()
        reason = f": {error}" if isinstance(error, HttpParserError) and str(error) else ""
        self._refuse(400, f"this is not an HTTP/1.1 request{reason}")

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
        body = error_body(text)
        lines = [
            STATUS_LINE[status],
            *(b"%b: %b\r\n" % header for header in self.server_state.default_headers),
            b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
            body,
        ]
        self._refusal = b"".join(lines)
        self.flow.pause_reading()
        if not self._unanswered:
            self._send_refusal()

    def _give_up_newest(self) -> None:
        """Its body will never be whole, so whoever waits for that must not answer it."""
        self._unanswered -= 1
        self.cycle.response_complete = self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.pipeline:
            self.pipeline.popleft()

    def _send_refusal(self) -> None:
        self._unset_keepalive_if_required()
        self.transport.write(self._refusal)
        self.transport.close()
