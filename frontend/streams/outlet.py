"""Outlet of one answer: its further pieces leave in the call that made them.

Only pieces that need not wait for the client pass here. All others go the way of the first one.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import FRAME_HEAD_BYTES
from ringbatch.frontend.http2.stream import Stream

H = TypeVar("H")


class Outlet(Generic[H]):
    """Outlet of one answer, see the module.

    Attributes:
        stream: as below.
        number: of that stream.
        held: whether pieces wait elsewhere, which go first.
        sent_bytes: of the pieces that have passed.

    Args:
        core: connection of the answer.
        stream: of that connection.
        flush_soon: schedules a flush of the connection.
    """

    __slots__ = ("_core", "_flush_soon", "held", "number", "sent_bytes", "stream")

    def __init__(
        self, core: Connection[H], stream: Stream[H], flush_soon: Callable[[], None]
    ) -> None:
        self._core = core
        self.stream = stream
        self._flush_soon = flush_soon
        self.number = stream.number
        self.held = False
        self.sent_bytes = 0

    def send(self, piece: bytes) -> bool:
        """Send a piece, unless others wait or the answer has ended; return whether it is sent."""
        stream = self.stream
        if stream.queue or not stream.takes_answer:
            return False
        self._core.send(stream, piece)
        self.sent_bytes += len(piece)
        self._flush_soon()
        return True

    def takes(self, size: int) -> bool:
        """Return whether the stream has room for a piece of that size, and no other waits."""
        stream = self.stream
        return (
            not (self.held or stream.queue)
            and stream.head_sent
            and size <= stream.window
            and stream.takes_answer
        )

    def send_frame(self, frame: bytes) -> bool:
        """Send a piece in its own frame, if it need not wait; return whether it is sent."""
        size = len(frame) - FRAME_HEAD_BYTES
        core = self._core
        if not (self.takes(size) and core.has_room(1, size)):
            return False
        core.send_frames((self.stream,), frame, size)
        self.sent_bytes += size
        self._flush_soon()
        return True
