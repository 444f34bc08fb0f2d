"""Exchange of requests and answers on a generator's connection, for any protocol. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ringbatch.bench.load.answers import Reference
from ringbatch.bench.load.stream_reference import StreamReference


@dataclass(frozen=True)
class Requests:
    """Requests to send.

    Attributes:
        messages: whole requests, sent in turn; over gRPC messages with their lengths before them.
        references: the right answers in the same order; none where they are not compared.
        call_head: over gRPC, the header block of each call.
        streams: the right answers in events, in the same order; none where nothing is known of
            them.
        compares: False to hold answers in events to their number of parts alone.
    """

    messages: Sequence[bytes]
    references: Sequence[Reference] = ()
    call_head: bytes = b""
    streams: Sequence[StreamReference] = ()
    compares: bool = True


class Traces:
    """Generator of unique ``traceparent`` values (W3C Trace Context).

    Args:
        seed: of 64 bits, different for each generator.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def make(self) -> bytes:
        """Return the next value, 55 characters."""
        self._count += 1
        return b"00-%016x%016x-%016x-00" % (self._seed, self._count, self._count)


class Exchange(Protocol):
    """Client side of a connection, on which one request at a time is under way.

    Attributes:
        reply: bytes to be sent now, also in the middle of an answer; the caller clears it.
        closes: whether the connection takes no further request.
    """

    reply: bytes
    closes: bool

    @property
    def answer(self) -> bytes:
        """Body of the latest whole answer; over gRPC its message."""

    def greeting(self) -> bytes:
        """Return the bytes before the first request."""

    def ask(self, which: int, number: int) -> bytes:
        """Return one of the requests, or as much of it as may be sent now.

        Args:
            which: of the messages.
            number: under which its end is told.
        """

    def take(self, data: bytes) -> int | None:
        """Take received bytes; return the status once the answer is whole.

        Raises:
            BadAnswer: it cannot be read.
        """
