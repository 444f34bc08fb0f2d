"""HTTP/1.1 on a connection of a generator. Pure."""

from ringbatch.bench.load.answers import BadAnswer, read_head
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.outcome import WRONG

_IDLE = -1


def with_trace(message: bytes, traces: Traces) -> bytes:
    """Return a request with a trace of its own."""
    line, rest = message.split(b"\r\n", 1)
    return b"%b\r\ntraceparent: %b\r\n%b" % (line, traces.make(), rest)


class Http1:
    """An `Exchange`: a request goes out whole, and its answer comes back whole.

    Args:
        requests: the requests to send.
        traces: makes the trace of each request; None for no traces.
    """

    __slots__ = (
        *("_body", "_data", "_messages", "_references", "_size", "_which", "_whole"),
        *("_traces", "closes", "reply"),
    )

    def __init__(self, requests: Requests, traces: Traces | None = None) -> None:
        self._traces = traces
        self.reply = b""
        self.closes = False
        self._messages, self._references = requests.messages, requests.references
        self._which = _IDLE
        self._data = bytearray()
        self._size = 0
        self._whole, self._body = b"", 0

    @property
    def answer(self) -> bytes:
        """The body of the answer that was whole last."""
        return self._whole[self._body :]

    def greeting(self) -> bytes:
        """Return no bytes: the first thing to send is a request."""
        return b""

    def ask(self, which: int, number: int) -> bytes:
        """Return the request."""
        self._which = which
        message = self._messages[which]
        return message if self._traces is None else with_trace(message, self._traces)

    def take(self, data: bytes) -> int | None:
        """Take received bytes; return the status once the answer is whole.

        Raises:
            BadAnswer: it cannot be read, or no request is under way.
        """
        if self._data or self._size:
            self._data += data
            if len(self._data) < self._size:
                return None
            data = bytes(self._data)
        head = read_head(data)
        if head is None or len(data) < head.size:
            self._data[:] = data
            self._size = 0 if head is None else head.size
            return None
        if self._which == _IDLE or len(data) > head.size:
            raise BadAnswer("an answer to which there was no request")
        self._whole, self._body = data, head.body
        status = head.status
        right = self._references[self._which] if status == 200 and self._references else None
        if right is not None and not right.is_met_by(data[head.body :]):
            status = WRONG
        if self._size:
            self._size = 0
            self._data.clear()
        self._which = _IDLE
        self.closes = head.closes
        return status
