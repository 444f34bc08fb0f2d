"""One connection of HTTP/2 on the port of HTTP: what comes on its streams goes to the application.

HTTP/2 is `ringbatch.frontend.http2`'s. What is sent in one turn of the event loop is written at
once. There are no timers but that of the stop: `tick` is called once a second for every connection.
"""

import asyncio
from math import inf
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import error_body
from ringbatch.frontend.codec.request_ids import ID_HEADER
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import NO_ERROR, PREFACE
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.answer_head import answer_head
from ringbatch.frontend.streams.connection_clocks import ConnectionClocks, Due
from ringbatch.frontend.streams.rest_head import LIST_BYTES, RestHead, rest_head
from ringbatch.frontend.streams.served_stream import ServedStream
from ringbatch.frontend.streams.upgrade import SWITCHING, Upgrade, upgrade_of
from ringbatch.shm.tallies import Protocol

MOST_STREAMS: Final = 128
"""Requests of one connection that are served at once."""
LEAVE_S: Final = 1.0
"""How long a client may take to say that it begins no further request."""
_ID: Final = ID_HEADER.encode()


def heir(
    settings: FastLaneSettings,
    data: bytes,
    transport: asyncio.Transport,
    config: Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    loop: asyncio.AbstractEventLoop,
) -> "tuple[Http2Connection, bytes] | None":
    """As `ringbatch.frontend.http.fast_lane_settings.Heir`, with the settings of the process."""
    arguments = settings, config, server_state, app_state, loop
    if PREFACE.startswith(data[: len(PREFACE)]):
        return Http2Connection(*arguments), data
    # Over TLS the hand-shake is where that is asked for.
    secure = transport.get_extra_info("sslcontext") is not None
    upgrade = None if secure else upgrade_of(data)
    if upgrade is None:
        return None
    return Http2Connection(*arguments, upgrade), data[upgrade.head_bytes :]


class Http2Connection(asyncio.Protocol):
    """See the module.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, loop: as uvicorn gives them to its protocols.
        upgrade: the request that asked for h2c; None where the client began with HTTP/2.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        settings: FastLaneSettings,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        upgrade: Upgrade | None = None,
    ) -> None:
        self._settings = settings
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._loop = loop
        self._upgrade = upgrade
        self.budget: BodyBudget = settings.budget
        self.core: Connection[RestHead] = Connection(rest_head, MOST_STREAMS, LIST_BYTES)
        self._clocks = ConnectionClocks(settings.idle_timeout_s, inf)
        self._serving: dict[int, ServedStream] = {}
        self._flushing = False
        self._scope: dict[str, Any] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport's call, or HTTP/1's: the connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        info = transport.get_extra_info
        secure = info("sslcontext") is not None
        self._scope = {
            "scheme": "https" if secure else "http",
            "server": _address(info("sockname")),
            "client": _address(info("peername")),
        }
        if self._upgrade is not None:
            self._transport.write(SWITCHING)
            settings, request, _ = self._upgrade
            for stream in self.core.upgraded(settings, request):
                self._begin(stream)
            self._upgrade = None
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is closed, by whomever."""
        self._server_state.connections.discard(self)
        for stream in self.core.give_up(NO_ERROR, ""):
            self._look_at(stream)
        self.core.take_output()

    def data_received(self, data: bytes) -> None:
        """The transport's call: bytes have come."""
        core = self.core
        for stream in core.receive(data):
            self._look_at(stream)
        self._look_for_room()
        if core.has_output or core.over:
            self._flush()

    def eof_received(self) -> None:
        """The transport's call: nothing more comes, and so nobody is there."""

    def pause_writing(self) -> None:
        """The transport's call: the client does not read its answers."""
        self.core.writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The transport's call: the client reads again."""
        self.core.writable = True
        self.core.go_on()
        self._look_for_room()
        self._transport.resume_reading()
        self._flush()

    def tick(self) -> None:
        """The server's call: another second has passed."""
        core = self.core
        core.tick()
        for served in list(self._serving.values()):
            served.tick()
        due = self._clocks.tick(
            core,
            calls=len(self._serving),
            unsent_bytes=0 if core.writable else self._transport.get_write_buffer_size(),
        )
        self._look_for_room()
        if due is Due.ABORT:
            self._transport.abort()
            return
        if due is Due.PROBE:
            core.probe()
        elif due is Due.CLOSE:
            core.close()
        self._flush()

    def forget(self) -> None:
        """The server's call: the keys are others now; here every request is looked at anyway."""

    def leave(self) -> None:
        """The server's call: the client is asked to begin no further request."""
        if not self.core.leaving:
            self.core.leave()
            self._loop.call_later(LEAVE_S, self._close)
            self._flush()

    def shutdown(self) -> None:
        """The server's call: finish what has begun, and close."""
        self.leave()

    def flush_soon(self) -> None:
        """There may be something to send, with whatever else comes in this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def let_go(self, stream: Stream[RestHead]) -> None:
        """A `ServedStream`'s: it is served."""
        self._serving.pop(stream.number, None)
        self.flush_soon()

    def refuse(self, stream: Stream[RestHead], status: int, body: bytes) -> None:
        """A `ServedStream`'s, or this one's own: a request is refused before anybody serves it."""
        self._settings.predictions.ended_outside(Protocol.HTTP, status)
        headers = [
            *self.default_headers(),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (_ID, self._settings.recorder.ids.make()),
        ]
        self.core.begin(stream, answer_head(status, headers))
        self.core.send(stream, body if stream.head.method != "HEAD" else b"")
        self.core.end(stream, b"")
        self.flush_soon()

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """As uvicorn has them."""
        return self._server_state.default_headers

    def _look_at(self, stream: Stream[RestHead]) -> None:
        """Something has happened on a stream."""
        number = stream.number
        served = self._serving.get(number)
        if stream.gone:
            if served is not None:
                served.cancel()
        elif served is not None:
            served.happened()
        elif stream.trailers is None:
            self._begin(stream)
        else:
            # It is refused, and the answer has yet to be taken.
            stream.pieces.clear()

    def _begin(self, stream: Stream[RestHead]) -> None:
        head = stream.head
        if head.status:
            stream.pieces.clear()
            self.refuse(stream, head.status, error_body(head.refusal))
            return
        scope = self._scope | {"state": self._app_state.copy()}
        served = self._serving[stream.number] = ServedStream(self, stream, scope)
        task = served.start(self._config.loaded_app, self._loop)
        task.add_done_callback(self._server_state.tasks.discard)
        self._server_state.tasks.add(task)
        served.happened()

    def _look_for_room(self) -> None:
        for served in list(self._serving.values()):
            served.looked()

    def _close(self) -> None:
        for served in list(self._serving.values()):
            served.leave()
        self.core.close()
        self._flush()

    def _flush(self) -> None:
        """Send what there is to be sent; close what is at its end."""
        self._flushing = False
        core = self.core
        if self._transport.is_closing():
            core.take_output()
            return
        if core.has_output:
            large = core.large
            out = core.take_output()
            if large:
                self._transport.writelines(out)
            else:
                self._transport.write(b"".join(out))
        if core.over or (core.closing and not core.streams):
            self._transport.close()


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None
