"""The fast lane with a payload log: it keeps drawn requests until they are answered."""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.event_stream import MEDIA_TYPE
from ringbatch.frontend.codec.outcome import Answer, Headers
from ringbatch.frontend.http.event_answer import EventAnswer
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.payloads.recorder import Answered, Kept, PayloadRecorder
from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.outcomes import RequestOutcome

JSON_LENGTH = "inference-header-content-length"
_TYPE = "content-type"
_CODING = "content-encoding"


class KeptLane(FastLane):
    """Fast-lane connection with a payload log: keeps drawn requests until they are answered.

    Args:
        payloads: takes drawn requests.
        settings, config, server_state, app_state, _loop: as for `FastLane`.
    """

    __slots__ = ("_draw", "_drawn", "_kept", "_payloads")

    def __init__(
        self,
        payloads: PayloadRecorder,
        settings: FastLaneSettings,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(settings, config, server_state, app_state, _loop)
        self._payloads = payloads
        self._draw = payloads.draw
        self._drawn = False
        self._kept: Kept | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        kept, self._kept = self._kept if self._call is not None else None, None
        events = self._events
        super().connection_lost(exc)
        if kept is None:
            return
        ending = self._outcomes.last()
        if events is not None and events.begun:
            self._payloads.ended(kept, ending, events.request_id, sent_of(events))
        else:
            self._ended(kept, ending, Answered(b"", 0))

    def _begin(self, head: RequestHead, body: Body) -> None:
        draw = self._draw
        if draw.left_out and not self._drawn and not self._tried:
            # As `hits` does, whose call would be half of what this takes.
            draw.left_out -= 1
        # One that was tried in vain was not drawn then.
        elif self._drawn or (not self._tried and draw.hits()):
            headers = headers_of(self._head_text)
            self._kept = self._payloads.kept(headers, body, head.json_bytes)
        self._drawn = False
        super()._begin(head, body)

    def _event_answer(self, head: RequestHead) -> EventAnswer:
        events = super()._event_answer(head)
        if self._kept is not None:
            events.keeps_bytes = self._payloads.most_bytes
        return events

    def end_events(self, keep_alive: bool) -> None:
        """As in `EventConnection`."""
        events, kept = self._events, self._kept
        self._kept = None
        if events is not None and kept is not None:
            ending = self._outcomes.last()
            self._payloads.ended(kept, ending, events.request_id, sent_of(events))
        super().end_events(keep_alive)

    def _prepare(self, head: RequestHead, json_bytes: int) -> None:
        if not self._tried:
            self._drawn = self._payloads.draws()
            # Its body is to be gathered.
            self._tried = self._drawn
        super()._prepare(head, json_bytes)

    def _answer(self, answer: Answer) -> None:
        kept = self._kept
        if kept is None:
            super()._answer(answer)
            return
        self._kept = None
        ending = self._outcomes.last()
        super()._answer(answer)
        _, body, headers = answer
        self._ended(kept, ending, answered(body, headers))

    def _ended(self, kept: Kept, ending: RequestOutcome, answer: Answered) -> None:
        request_id = self._identity.partition(b"\r\n")[0]
        self._payloads.ended(kept, ending, request_id, answer)


def sent_of(events: EventAnswer) -> Answered:
    """Return the events that have left, for the payload log."""
    return Answered(events.kept, events.bytes_out, None, MEDIA_TYPE)


def headers_of(head: bytes) -> dict[bytes, bytes]:
    """Return the headers of a head by name in lower case, the last of each name."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.lower(): value.strip(b" \t") for name, colon, value in lines if colon}


def answered(body: bytes, headers: Headers) -> Answered:
    """Return an answer for the payload log."""
    found = {name.lower(): value for name, value in headers}
    length = found.get(JSON_LENGTH, "")
    json_bytes = int(length) if length else None
    return Answered(body, len(body), json_bytes, found.get(_TYPE, ""), found.get(_CODING, ""))
