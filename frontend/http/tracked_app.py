"""ASGI middleware that gives every request its id, timing headers and log line.

See `ringbatch.frontend.access.recorder`.
"""

from collections.abc import Mapping
from typing import Any, Final

from ringbatch.frontend.access.recorder import Exchanged, Recorder
from ringbatch.frontend.access.sampling import is_of_health
from ringbatch.frontend.codec.request_ids import (
    ASK_HEADER,
    ASKED,
    ID_HEADER,
    TIMING_HEADER,
    TRACE_HEADER,
    sound_trace,
    taken,
)
from ringbatch.frontend.http.answering import answered
from ringbatch.frontend.http.asgi import App, Receive, Scope, Send
from ringbatch.frontend.http.asgi_scope import (
    BEGAN,
    ENDING,
    EXCHANGES,
    IN_PARTS,
    OUTLET,
    QUERIED,
    REFUSED,
    Exchanges,
    PieceOutlet,
)
from ringbatch.frontend.http.head_meaning import only
from ringbatch.frontend.http.parts_timing import TIMING, PartsTiming
from ringbatch.frontend.load.orca_report import ASK_HEADER as LOAD_ASK_HEADER
from ringbatch.frontend.load.orca_report import HEADER as LOAD_HEADER
from ringbatch.frontend.load.orca_report import form_of
from ringbatch.frontend.payloads.kept_exchange import KeptExchange
from ringbatch.frontend.payloads.recorder import PayloadRecorder
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.tallies import CLIENT_GONE, Tally

_ID: Final = ID_HEADER.encode()
_TRACE: Final = TRACE_HEADER.encode()
_ASK: Final = ASK_HEADER.encode()
_TIMING: Final = TIMING_HEADER.encode()
_LOAD_ASK: Final = LOAD_ASK_HEADER.encode()
_LOAD: Final = LOAD_HEADER.encode()
_BY_QUERY: Final = "/generate_stream"
"""End of the paths whose requests may have a query in place of a body."""


class TrackedApp:
    """Wrapper of the application, see the module.

    The served code finds a request's id among its headers, and a ``traceparent`` only if it is
    sound.

    Args:
        app: serves the requests.
        recorder: of the process.
        nobody: counts requests that were passed on, whose end no other code has seen.
        payloads: takes drawn requests; None if there is no payload log.
    """

    def __init__(
        self,
        app: App,
        recorder: Recorder,
        nobody: Tally,
        payloads: PayloadRecorder | None = None,
    ) -> None:
        self._payloads = payloads
        self._app = app
        self._recorder = recorder
        self._nobody = nobody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application, and record its outcome."""
        watched = _Watched(scope, receive, send, self._recorder, self._nobody)
        if self._payloads is not None and _may_ask(scope) and self._payloads.draws():
            watched.kept = KeptExchange(self._payloads, scope["headers"])
            scope[QUERIED] = watched.kept.asks
            # Its pieces are kept as they pass.
            scope.pop(OUTLET, None)
        try:
            await answered(self._app, scope, watched.receive, watched.send)
        finally:
            watched.ended()


def _may_ask(scope: Scope) -> bool:
    """Return whether a request may be for a model, by its head."""
    method: str = scope["method"]
    return method == "POST" or (method == "GET" and scope["path"].endswith(_BY_QUERY))


class _Watched:
    """ASGI request whose outcome is recorded."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, recorder: Recorder, nobody: Tally
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._recorder = recorder
        self._nobody = nobody
        self._exchanges: Exchanges = scope.get(EXCHANGES, Exchanges())
        self._target = f"{scope['method']} {scope['path']}"
        self._accepted_ns = recorder.clock()
        self._began_ns: int = scope.get(BEGAN, self._accepted_ns)
        self._status = 0
        self._ours = True
        """True if ringbatch itself is known to have answered the request."""
        self._taken_ns = 0
        self._bytes_in = self._bytes_out = 0
        self.kept: KeptExchange | None = None
        values: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.lower(), []).append(value)
        self._id = taken(only(values, _ID)) or recorder.ids.make()
        self._trace = sound_trace(only(values, _TRACE))
        self._sends_timing = recorder.metadata.server_timing or only(values, _ASK) == ASKED.encode()
        if self._sends_timing:
            scope[TIMING] = PartsTiming(recorder, self._began_ns)
        self._outlet: PieceOutlet | None = scope.get(OUTLET)
        self._load = form_of(only(values, _LOAD_ASK))
        headers = [line for line in scope["headers"] if line[0].lower() not in (_ID, _TRACE)]
        headers.append((_ID, self._id))
        if self._trace:
            headers.append((_TRACE, self._trace))
        scope["headers"] = headers

    async def receive(self) -> Mapping[str, Any]:
        """Return the next event; called by the application."""
        message = await self._receive()
        self._bytes_in += len(message.get("body", b""))
        if self.kept is not None:
            self.kept.asks(message.get("body", b""))
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Send an event; called by the application."""
        if message["type"] == "http.response.start":
            # The client does not get the application's answer to a request that was cut off.
            self._status = CLIENT_GONE if self._exchanges.gone else message["status"]
            own = [(_ID, self._id)]
            # One that the connection has refused is counted, and this goes nowhere. One in parts
            # has no end yet.
            if not self._scope.get(REFUSED) and IN_PARTS not in self._scope:
                ending = self._ending()
                if self._sends_timing:
                    own.append((_TIMING, self._recorder.metadata.timing(ending, self._began_ns)))
            if report := self._recorder.metadata.load_value(self._load):
                own.append((_LOAD, report))
            names = {name for name, _ in own}
            # Of a server whose answer is passed on, these would be about another request.
            headers = [line for line in message.get("headers", ()) if line[0].lower() not in names]
            message = message | {"headers": [*headers, *own]}
            if self.kept is not None:
                self.kept.begins(message["headers"])
        else:
            piece = message.get("body", b"")
            self._bytes_out += len(piece)
            if self.kept is not None:
                self.kept.answers(piece)
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # What the application does afterwards, as Starlette's background tasks, is its own.
            self._taken_ns = self._recorder.clock()

    def ended(self) -> None:
        """Record that the application has returned, as it does once the client takes the answer."""
        if self._scope.get(REFUSED):
            # The connection itself has refused it, and said so.
            return
        if (end := self._scope.get(IN_PARTS)) is not None:
            # A client that has left need not have read its parts to the end.
            end()
        ending = self._ending()
        client = self._scope.get("client")
        exchanged = Exchanged(
            self._began_ns,
            self._id,
            self._trace,
            self._target,
            f"{client[0]}:{client[1]}" if client else "",
            self._bytes_in,
            self._bytes_out + (0 if self._outlet is None else self._outlet.sent_bytes),
        )
        take_ns = max((self._taken_ns or self._recorder.clock()) - ending.ended_ns, 0)
        drawn = self._recorder.drawn(self._trace)
        if self.kept is not None:
            self.kept.ended(ending, self._id)
        is_probe = is_of_health(self._scope["path"], ours=self._ours)
        self._recorder.record(ending, exchanged, take_ns, drawn=drawn, is_probe=is_probe)

    def _ending(self) -> RequestOutcome:
        found: RequestOutcome | None = self._scope.get(ENDING)
        if found is None:
            outcomes = self._recorder.outcomes
            self._ours = False
            outcomes.record(self._nobody, self._status or CLIENT_GONE, self._accepted_ns)
            found = self._scope[ENDING] = outcomes.last()
        return found
