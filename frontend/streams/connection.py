"""HTTP/2 connection on the port of HTTP, whose streams are requests to the ASGI application.

Its bytes and its clocks are those of every connection over HTTP/2 (served_connection.py).
"""

import asyncio
from math import inf
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import error_body
from ringbatch.frontend.codec.request_ids import ID_HEADER
from ringbatch.frontend.http.asgi_scope import FORMS
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import PREFACE
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.answer_head import answer_head
from ringbatch.frontend.streams.connection_clocks import ConnectionClocks
from ringbatch.frontend.streams.rest_head import LIST_BYTES, RestHead, rest_head
from ringbatch.frontend.streams.served_connection import ServedConnection
from ringbatch.frontend.streams.served_stream import ServedStream
from ringbatch.shm.tallies import Protocol

MOST_STREAMS: Final = 128
"""Requests of one connection that are served at once."""
_GUESS_BYTES: Final = 1 << 20
"""The expected size of an answer until the connection has had one."""
AT_ONCE: Final = 8
"""Streams that begin in one turn of the event loop: others wait for their parts meanwhile."""
_FORGETTING: Final = 8
"""A smaller answer than expected reduces the expected size by one part in so many."""
_ID: Final = ID_HEADER.encode()


def http2_handoff(
    settings: FastLaneSettings,
    data: bytes,
    config: Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    loop: asyncio.AbstractEventLoop,
) -> "Http2Connection | None":
    """As `fast_lane_settings.Http2Handoff` of room http, with the settings of the process."""
    if not PREFACE.startswith(data[: len(PREFACE)]):
        return None
    return Http2Connection(settings, config, server_state, app_state, loop)


class Http2Connection(ServedConnection[RestHead, ServedStream]):
    """HTTP/2 connection whose streams the ASGI application serves.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, loop: as uvicorn gives them to its protocols.
    """

    __slots__ = (
        "_answer_bytes",
        "_app_state",
        "_begun",
        "_begun_now",
        "_config",
        "_forms",
        "_scope",
        "_server_state",
        "_settings",
        "budget",
    )

    def __init__(
        self,
        settings: FastLaneSettings,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        core = Connection(rest_head, MOST_STREAMS, LIST_BYTES)
        super().__init__(core, ConnectionClocks(settings.idle_timeout_s, inf), loop)
        self._settings = settings
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self.budget: BodyBudget = settings.budget
        self._answer_bytes = _GUESS_BYTES
        """The expected size of an answer."""
        self._begun = 0
        """The number of streams that began in this second and have no answer yet."""
        self._begun_now = 0
        """The number of streams that began in this turn of the loop."""
        self._scope: dict[str, Any] = {}
        self._forms: dict[Any, Any] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection; called by the transport, or by HTTP/1's protocol."""
        self._transport = transport  # type: ignore[assignment]
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        info = transport.get_extra_info
        secure = info("sslcontext") is not None
        self._scope = {
            "scheme": "https" if secure else "http",
            "server": _address(info("sockname")),
            "client": _address(info("peername")),
            FORMS: self._forms,
        }
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._server_state.connections.discard(self)
        super().connection_lost(exc)
        self._forms.clear()

    def forget(self) -> None:
        """Ignore changed keys, as every request is checked here; called by the server."""

    def shutdown(self) -> None:
        """Finish the requests that have begun, and close; called by the server."""
        self.leave()

    def refuse(self, stream: Stream[RestHead], status: int, body: bytes) -> None:
        """Refuse a request that nobody has answered yet; a `ServedStream` calls this."""
        self._settings.predictions.record_outside(Protocol.HTTP, status)
        headers = [
            *self.default_headers(),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (_ID, self._settings.recorder.ids.make()),
        ]
        self.core.begin(stream, answer_head(status, headers))
        self.core.send(stream, body if stream.head.method != "HEAD" else b"")

    def made(self, size: int, *, first: bool) -> None:
        """Note the size of a piece of an answer; a `ServedStream` calls this.

        It makes no further piece while one waits, so that the stream holds no more than that.

        Args:
            size: in bytes.
            first: whether it is the stream's first.
        """
        expected = self._answer_bytes
        if first:
            expected -= expected // _FORGETTING
            self._begun = max(self._begun - 1, 0)
            self._look_again()
        self._answer_bytes = max(size, expected)

    def tick(self) -> None:
        """Begin another second; the server calls this.

        Streams from earlier seconds count no longer: they may wait for an event.
        """
        self._begun = 0
        self._look_again()
        super().tick()

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Return uvicorn's default headers."""
        return self._server_state.default_headers

    def _is_full(self) -> bool:
        if self._begun_now >= AT_ONCE:
            return True
        # Streams that begin together would all be answered before the first answer is seen to wait.
        begun, core = self._begun, self.core
        coming = begun * self._answer_bytes
        return core.full or (begun > 0 and coming > core.most_waiting_bytes - core.waiting_bytes)

    def _look_again(self) -> None:
        """Have the next flush look for room for more streams."""
        if self._held:
            self._reliefs = -1

    def _turn(self) -> None:
        """Begin more of the streams that wait, in another turn of the loop."""
        self._begun_now = 0
        if self._held:
            self._look_again()
            self._flush()

    def _begin(self, stream: Stream[RestHead]) -> None:
        head = stream.head
        scope = self._scope | {"state": self._app_state.copy()}
        self._begun += 1
        if not self._begun_now:
            self._loop.call_soon(self._turn)
        self._begun_now += 1
        served = self._serving[stream.number] = ServedStream(self, stream, scope)
        if head.status:
            served.refuse(head.status, error_body(head.refusal))
            return
        task = served.start(self._config.loaded_app, self._loop)
        task.add_done_callback(self._server_state.tasks.discard)
        self._server_state.tasks.add(task)
        served.happened()

    def _close(self) -> None:
        for served in list(self._serving.values()):
            served.leave()
        super()._close()


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None
