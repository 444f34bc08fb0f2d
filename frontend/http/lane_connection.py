"""A connection of the fast lane, apart from its requests: its state, its clock, its end.

There are no timers here. `tick` is called once a second by the server for every connection.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.http.body_budget import Holding
from ringbatch.frontend.http.event_answer import EventAnswer
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings, UvicornArguments
from ringbatch.frontend.http.fast_lane_states import PHASE_OF, State
from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.lingering_close import linger
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, HEAD_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.receiver import Receiver
from ringbatch.frontend.http.request_tracking import RequestTracking
from ringbatch.frontend.request.calls import RequestHandle

MAX_WAITING_BYTES: Final = 1 << 16
"""Bytes that are read ahead of the request that is being answered."""
LAST_LOOK_S: Final = 0.001
"""Seconds before the last look, in which the loop reads once more."""
_HEAD: Final = State.HEAD
_RECEIVING: Final = State.RECEIVING
_ANSWER: Final = State.ANSWER
_EVENTS: Final = State.EVENTS
_HELD: Final = State.HELD
_NEXT: Final = State.NEXT
_ENDED: Final = State.ENDED
NONE_HAS_AS_MANY: Final = -1
NO_HEAD: Final = RequestHead("", 0, 0, NONE_HAS_AS_MANY, keep_alive=True)


class LaneConnection(asyncio.Protocol):
    """Base of `ringbatch.frontend.http.fast_lane.FastLane`, which serves the requests.

    Args:
        settings: shared by all connections.
        config, server_state, app_state, _loop: as uvicorn gives them to its protocols.
    """

    __slots__ = (
        "_buffer",
        "_call",
        "_clock",
        "_events",
        "_given",
        "_head",
        "_head_text",
        "_held",
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
        "_retry_ns",
        "_samples",
        "_seen_bytes",
        "_settings",
        "_state",
        "_stopping",
        "_transport",
        "_tried",
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
        self._loop = _loop or asyncio.get_running_loop()
        self._given = UvicornArguments(config, server_state, app_state, self._loop)
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
        self._head = NO_HEAD
        """The head of the current request, or of the last one."""
        self._state = _HEAD
        self._tried = False
        self._buffer = bytearray()
        self._seen_bytes = 0
        """Bytes of an incomplete head that the last search for its end has covered."""
        self._call: RequestHandle | None = None
        self._events: EventAnswer | None = None
        self._receiver: Receiver | None = None
        self._held: Answer | None = None
        """A refusal that waits for its turn."""
        self._retry_ns = 0
        """Until when the client was told to wait, with the last refusal."""
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
        self._given.server_state.connections.add(self)  # type: ignore[arg-type]
        if self._settings.stopping():
            self.shutdown()
        elif self._settings.leaving():
            self.leave()

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
        if self._events is not None and self._state is _EVENTS:
            self._events.tick()
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
            sent_bytes = 0 if self._events is None else self._events.sent_bytes
            return sent_bytes - self._transport.get_write_buffer_size()
        if self._state is _RECEIVING and self._receiver is not None:
            return self._receiver.received_bytes
        return len(self._buffer)

    def forget(self) -> None:
        """Forget the last head, whose meaning may have changed; called by the server."""
        self._head = self._head._replace(request_bytes=NONE_HAS_AS_MANY)

    def leave(self) -> None:
        """End the connection with the next answer, if there is one; called by the server."""
        self._leaving = True
        self._keep_alive = False
        self.release()

    def shutdown(self) -> None:
        """Finish the request that has begun, and close; called by the server."""
        self._stopping = True
        self.leave()
        # A request may be on its way already; closing at once would answer it with a reset.
        self._loop.call_later(self._settings.close_grace_s(), self._grace_is_over)

    def _advance(self) -> None:
        """Serve the next request that the buffer holds, as far as it has come."""
        raise NotImplementedError

    def release(self) -> None:
        """Send the refusal that waits for its turn, if there is one."""
        raise NotImplementedError

    def _refuse(self, status: int, text: str) -> None:
        """Answer with an error, and close."""
        raise NotImplementedError

    def _part(self) -> None:
        """Close the connection behind its last answer."""
        comes_more = self._state is not _HEAD or len(self._buffer) > 0
        self._end()
        if comes_more:
            linger(self._transport, self._loop)
        else:
            self._transport.close()

    def _regulate(self) -> None:
        """Read only as far ahead as there is a use for it."""
        state = self._state
        # A client that reads no events may leave, which is seen only by reading.
        reading = (self._writable or state is _EVENTS) and not (
            state in (_ANSWER, _EVENTS, _HELD, _NEXT) and len(self._buffer) > MAX_WAITING_BYTES
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
        self._held = None
        self._buffer.clear()
        self._holding.end()
        if self._receiver is not None:
            self._receiver.abandon()

    def _grace_is_over(self) -> None:
        # On a busy host this timer may come late, and a loop runs its timers before it reads.
        self._loop.call_later(LAST_LOOK_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._state is _HEAD:
            self._close()
