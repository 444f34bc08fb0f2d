"""Messages in the body of a call: each has its length before it, and may be compressed.

Received bytes that are no message yet count for the budget of the process. So clients that stop in
the middle cannot take more memory than that, however many they are.
"""

from struct import Struct
from typing import Final, NamedTuple

from ringbatch.frontend.codec.limit_messages import body_too_large
from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.grpc.call_head import IDENTITY
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.content_coding import CODINGS
from ringbatch.shm.errors import InvalidRequest

PREFIX: Final = Struct(">BI")
"""Prefix of a message: if it is compressed, and its length."""
PREFIX_BYTES: Final = 5


class Packed(NamedTuple):
    """A compressed message.

    Attributes:
        coding: one of `CODINGS`.
        data: the message as it came.
        max_bytes: the most that it may mean.
    """

    coding: str
    data: bytes
    max_bytes: int


class MessageReader:
    """The messages of one call.

    Args:
        coding: of those that are compressed.
        max_bytes: that one may have.
        budget: of the process.

    Attributes:
        held_bytes: that have come and were not taken.
    """

    __slots__ = ("_budget", "_buffer", "_coding", "_max_bytes", "held_bytes")

    def __init__(self, coding: str, max_bytes: int, budget: BodyBudget) -> None:
        self._coding = coding
        self._max_bytes = max_bytes
        self._budget = budget
        self._buffer = bytearray()
        self.held_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take more bytes of the body; raise `Overloaded` if there is no room for them."""
        self._budget.take(len(data))
        self.held_bytes += len(data)
        self._buffer += data

    def next(self) -> bytes | Packed | None:
        """Return the next message; None if it is not there yet.

        Raises:
            RequestTooLarge: it has more bytes than any may have.
            InvalidRequest: it is not what its prefix says.
            NotSupported: its compression is unknown.
        """
        buffer = self._buffer
        if len(buffer) < PREFIX_BYTES:
            return None
        compressed, size = PREFIX.unpack_from(buffer)
        if size > self._max_bytes:
            raise body_too_large(f"the message has {size} bytes", self._max_bytes)
        if compressed > 1:
            raise InvalidRequest("a message is compressed or it is not")
        end = PREFIX_BYTES + size
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            data = bytes(view[PREFIX_BYTES:end])
        del buffer[:end]
        self._give(end)
        return self._packed(data) if compressed else data

    def take_all(self) -> bytes:
        """Return all bytes that were not taken, which become the caller's."""
        data = bytes(self._buffer)
        self.close()
        return data

    def close(self) -> None:
        """Drop the rest of the body."""
        self._buffer.clear()
        self._give(self.held_bytes)

    def _give(self, size: int) -> None:
        self.held_bytes -= size
        self._budget.give(size)

    def _packed(self, data: bytes) -> Packed:
        if self._coding == IDENTITY:
            raise InvalidRequest("a message is compressed, but its call does not say how")
        if self._coding not in CODINGS:
            raise NotSupported(f"messages can be compressed as {' or '.join(CODINGS)} alone")
        return Packed(self._coding, data, self._max_bytes)


def framed(data: bytes) -> bytes:
    """Return a message as it stands in a body."""
    return PREFIX.pack(0, len(data)) + data
