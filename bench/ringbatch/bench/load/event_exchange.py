"""Answers in server-sent events on a connection of a generator, over HTTP/1.1. Pure."""

from dataclasses import dataclass
from typing import Final

from ringbatch.bench.load.answers import BadAnswer, read_head
from ringbatch.bench.load.event_stream import ChunkedBody, EventReader, is_error, is_part
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.http1 import with_trace
from ringbatch.bench.load.outcome import CUT_OFF, EMPTY, WRONG
from ringbatch.bench.load.parts import AnswerParts, PartTimes

_EVENTS: Final = b"text/event-stream"
_OK: Final = 200


@dataclass(frozen=True)
class StreamHead:
    """Head of an answer.

    Attributes:
        status: of HTTP.
        body: where the body begins.
        closes: True if the connection takes no further request.
        chunked: False if the answer is whole, with a length.
    """

    status: int
    body: int
    closes: bool
    chunked: bool


def read_stream_head(data: bytes) -> StreamHead | None:
    """Return the head in the data so far; None if it is not whole.

    Raises:
        BadAnswer: it is not HTTP/1.1, or has status 200 and is no event stream.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        # Nothing is known yet but whether it can become a head.
        read_head(data)
        return None
    head = data[:end].lower() + b"\r\n"
    chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
    if chunked:
        status = data[9:12]
        if not data.startswith(b"HTTP/1.1 ") or not status.isdigit():
            raise BadAnswer(f"an answer without a status: {data[:40]!r}")
        found = StreamHead(int(status), end + 4, b"\r\nconnection: close\r\n" in head, True)
    else:
        whole = read_head(data)
        assert whole is not None
        found = StreamHead(whole.status, whole.body, whole.closes, False)
    if found.status == _OK:
        at = head.find(b"\r\ncontent-type:")
        form = head[at + 15 : head.find(b"\r\n", at + 2)].strip() if at >= 0 else b""
        if not chunked or not form.startswith(_EVENTS):
            kind = form.decode(errors="replace") or "nothing that it names"
            raise BadAnswer(f"an answer that is no event stream: its content is {kind}")
    return found


class EventExchange:
    """An `Exchange`: a request goes out whole, and its answer comes back in events.

    Args:
        requests: the requests to send.
        times: takes note of the parts.
        traces: makes the trace of each request; None for no traces.
        openai: True for streams of OpenAI's.
    """

    __slots__ = (
        *("_chunks", "_compares", "_events", "_failed", "_head", "_kept", "_openai", "_parts"),
        *("_requests", "_times", "_traces", "_unread", "_which", "closes", "reply"),
    )

    def __init__(
        self,
        requests: Requests,
        times: PartTimes,
        traces: Traces | None = None,
        *,
        openai: bool = False,
    ) -> None:
        self.reply = b""
        self.closes = False
        self._requests, self._times, self._traces = requests, times, traces
        self._openai = openai
        self._compares = requests.compares and bool(requests.streams)
        self._parts: AnswerParts | None = None
        self._which = 0
        self._unread = b""
        self._reset()

    def _reset(self) -> None:
        self._head: StreamHead | None = None
        self._chunks, self._events = ChunkedBody(), EventReader()
        self._kept: list[bytes] = []
        """The parts, if they are compared."""
        self._failed = False

    @property
    def answer(self) -> bytes:
        """Nothing: no answer is kept."""
        return b""

    def greeting(self) -> bytes:
        """Return no bytes: the first thing to send is a request."""
        return b""

    def ask(self, which: int, number: int) -> bytes:
        """Return the request."""
        self._which = which
        self._parts = self._times.begin(number)
        message = self._requests.messages[which]
        return message if self._traces is None else with_trace(message, self._traces)

    def take(self, data: bytes) -> int | None:
        """Take received bytes; return the status once the answer is whole.

        Raises:
            BadAnswer: it cannot be read, or no request is under way.
        """
        parts, head = self._parts, self._head
        if parts is None:
            raise BadAnswer("an answer to which there was no request")
        if head is None:
            data = self._unread + data
            head = read_stream_head(data)
            if head is None:
                self._unread = data
                return None
            if not head.chunked:
                return self._whole(data, head)
            self._head, self._unread = head, b""
            data = data[head.body :]
        body = self._chunks.take(data)
        if body and head.status == _OK:
            self._count(parts, self._events.take(body))
        return self._end(parts, head) if self._chunks.ended else None

    def _whole(self, data: bytes, head: StreamHead) -> int | None:
        """Take an answer that is no stream; return its status once it is whole."""
        whole = read_head(data)
        assert whole is not None
        assert self._parts is not None
        if len(data) < whole.size:
            self._unread = data
            return None
        if len(data) > whole.size:
            raise BadAnswer("an answer to which there was no request")
        self._unread = b""
        self._parts.ended, self._parts = True, None
        self.closes = head.closes
        return head.status

    def _count(self, parts: AnswerParts, events: list[bytes]) -> None:
        count = 0
        for event in events:
            if is_part(event, openai=self._openai):
                count += 1
                if self._compares:
                    self._kept.append(event)
            elif is_error(event):
                self._failed = True
        if count:
            self._times.came(parts, count)

    def _end(self, parts: AnswerParts, head: StreamHead) -> int:
        status = head.status
        if status == _OK:
            if self._failed:
                status = CUT_OFF
            elif not parts.count:
                status = EMPTY
            elif self._compares and not self._requests.streams[self._which].is_met_by(self._kept):
                status = WRONG
            elif self._requests.streams:
                parts.short = parts.count < self._requests.streams[self._which].count
        parts.ended, self._parts = True, None
        self.closes = head.closes
        self._reset()
        return status
