"""Ids, times and log lines of the requests on one connection of the fast lane.

See `ringbatch.frontend.access.recorder`.
"""

import asyncio
from typing import Final

from ringbatch.frontend.access.recorder import Exchanged, Recorder
from ringbatch.frontend.http.content_coding import MIN_ENCODED_BYTES
from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.parts_timing import PartsTiming
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.tallies import Protocol

LARGE_ANSWER_BYTES: Final = 1 << 16
"""A smaller answer is the kernel's at once."""


class RequestTracking:
    """Tracking of the requests on one fast-lane connection: ids, times and log lines.

    Attributes:
        began_ns: when the first byte of the next request came, or of the one that is answered; 0
            if all of it came at once.

    Args:
        recorder: of the process.
        transport: of the connection.
        loop: the transport's event loop.
    """

    __slots__ = (
        "_client",
        "_loop",
        "_recorder",
        "_transport",
        "_unsent",
        "_untaken",
        "began_ns",
    )

    def __init__(
        self,
        recorder: Recorder,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._recorder = recorder
        self._transport = transport
        self._loop = loop
        self._client = client_of(transport)
        self.began_ns = 0
        self._unsent: tuple[RequestOutcome, Exchanged, int] | None = None
        """Outcome of an answer whose body may still be compressed before it is sent."""
        self._untaken: tuple[RequestOutcome, Exchanged, int] | None = None

    @staticmethod
    def protocol_of(head: RequestHead) -> Protocol:
        """Return the protocol of a request, by which its end is counted."""
        if not head.infer:
            return Protocol.V1
        return Protocol.V2 if head.json_bytes is None else Protocol.V2_BINARY

    def begin(self) -> None:
        """Note that the first byte of a request came, and not all of it."""
        self.began_ns = self._recorder.clock()

    def ended(
        self, head: RequestHead, request_id: bytes, bytes_out: int, *, drawn: int | None
    ) -> bytes:
        """Record the end of a request, whose answer is about to be written.

        Args:
            head: the request's head.
            request_id: its own, or the one it was given.
            bytes_out: of the body of its answer, before it is encoded; if that can be, `sent`
                follows.
            drawn: the samples that it is in; None if it was not drawn.

        Returns:
            The head of the answer from the id on, without the length.
        """
        recorder = self._recorder
        if drawn is None:
            drawn = recorder.drawn(head.trace)
        began_ns, self.began_ns = self.began_ns, 0
        if self._untaken is not None:
            self.taken()
        must_log = recorder.outcomes.must_log
        if drawn or must_log or began_ns or bytes_out >= LARGE_ANSWER_BYTES:
            self._record(head, request_id, began_ns, bytes_out, drawn=drawn)
        metadata = recorder.metadata
        if head.timing or metadata.server_timing:
            request_id += metadata.timing_line(began_ns)
        return request_id + head.cors + metadata.load_line(head.load)

    def timing_of_parts(self, head: RequestHead) -> PartsTiming | None:
        """Return the timing of an answer in parts, if its client is to get it."""
        recorder = self._recorder
        if head.timing or recorder.metadata.server_timing:
            return PartsTiming(recorder, self.began_ns)
        return None

    def timing_event(self, timing: PartsTiming) -> bytes:
        """Return the event with the timing of the request that ended last."""
        return timing.event(self._recorder.outcomes.last())

    def begun(self, head: RequestHead, request_id: bytes) -> bytes:
        """Return the head of an answer in parts from the id on: its end tells no client more."""
        return request_id + head.cors + self._recorder.metadata.load_line(head.load)

    def ended_in_parts(self, head: RequestHead, request_id: bytes, bytes_out: int) -> None:
        """Record the end of a request whose answer has left in parts; arguments as for `ended`."""
        drawn = self._recorder.drawn(head.trace)
        began_ns, self.began_ns = self.began_ns, 0
        if self._untaken is not None:
            self.taken()
        self._record(head, request_id, began_ns, bytes_out, drawn=drawn)

    def _record(
        self, head: RequestHead, request_id: bytes, began_ns: int, bytes_out: int, *, drawn: int
    ) -> None:
        ending = self._recorder.outcomes.last()
        exchanged = Exchanged(
            began_ns,
            request_id,
            head.trace,
            "" if ending.tally.name else head.target,
            self._client,
            head.content_length,
            bytes_out,
        )
        if head.coding is not None and bytes_out >= MIN_ENCODED_BYTES:
            self._unsent = ending, exchanged, drawn
        else:
            self._put(ending, exchanged, drawn=drawn)

    def _put(self, ending: RequestOutcome, exchanged: Exchanged, *, drawn: int) -> None:
        if exchanged.bytes_out >= LARGE_ANSWER_BYTES:
            self._untaken = ending, exchanged, drawn
            self._loop.call_soon(self.look)
        else:
            self._recorder.record(ending, exchanged, drawn=drawn)

    def sent(self, bytes_out: int) -> None:
        """Record the bytes of the last answer's body, as it is sent."""
        if self._unsent is not None:
            (ending, exchanged, drawn), self._unsent = self._unsent, None
            self._put(ending, exchanged._replace(bytes_out=bytes_out), drawn=drawn)

    def look(self) -> None:
        """Look if the client has taken the last answer; to be called from time to time."""
        if self._untaken is not None and not self._transport.get_write_buffer_size():
            self.taken(at_once=True)

    def taken(self, *, at_once: bool = False) -> None:
        """Record that the client has taken the last answer, or goes without it."""
        self.sent(0)
        if self._untaken is None:
            return
        (ending, exchanged, drawn), self._untaken = self._untaken, None
        take_ns = 0 if at_once else self._recorder.clock() - ending.ended_ns
        self._recorder.record(ending, exchanged, take_ns, drawn=drawn)


def client_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of a connection's other end; empty if it has none."""
    found = transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else ""
