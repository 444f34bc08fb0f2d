"""Bodies: the DATA frames that a client sends, and the room that it has for them.

A frame is taken once it is whole, and its payload kept as a piece of its stream's. Where the stream
has a sink its payload lands there as it comes, so that of large bodies nothing is kept here.
"""

from typing import Final, TypeVar

from ringbatch.frontend.http2.control_frames import ControlFrames
from ringbatch.frontend.http2.flood_budget import FRAME
from ringbatch.frontend.http2.frames import (
    DATA,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_SIZE_ERROR,
    LEAST_FRAME_BYTES,
    MAX_WINDOW,
    PADDED,
    PROTOCOL_ERROR,
    STREAM_CLOSED,
    ConnectionFault,
    StreamFault,
    window_frame,
)
from ringbatch.frontend.http2.header_rules import UNKNOWN
from ringbatch.frontend.http2.stream import Stream

H = TypeVar("H")

STREAM_ROOM: Final = 1 << 20
"""Bytes of one stream that may come before any of them are taken."""
CONNECTION_ROOM: Final = 1 << 24
"""Bytes of one connection that may come before any of them are taken. The window is given back as
bytes come, so that no stream stands in the way of another: each stream bounds its own bytes. While
answers wait and no stream is begun, it is not given back, and bounds the bytes of such streams."""
_SMALL_BYTES: Final = 32
"""A piece of a body that is no longer leads to nothing."""


class Bodies(ControlFrames[H]):
    """A connection, as far as bodies are concerned.

    Attributes:
        frames: how many came; those of one header block are one.
    """

    __slots__ = (
        "_landing",
        "_landing_bytes",
        "_landing_ends",
        "_room",
        "_unreturned",
        "frames",
    )

    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        self._room = CONNECTION_ROOM
        self._unreturned = 0
        self._landing: Stream[H] | None = None
        """Stream of the frame that lands, or was the last to land."""
        self._landing_bytes = 0
        """Bytes of that frame's payload that are yet to come."""
        self._landing_ends = False
        """True if that frame ends its stream."""

    def taken(self, stream: Stream[H], size: int) -> None:
        """Note that bytes of a body were taken, so that the client may send as many more."""
        stream.unread += size
        if stream.unread >= STREAM_ROOM // 2 and not stream.ended and not stream.gone:
            self._out.append(window_frame(stream.number, stream.unread))
            stream.room += stream.unread
            stream.unread = 0

    def _take_data(self, data: bytes, start: int, end: int, flags: int, number: int) -> None:
        size = end - start
        self._use_room(size)
        if flags & PADDED:
            start, end = unpadded(data, start, end)
        stream = self.streams.get(number)
        if stream is None:
            self._expect_late(number)
            return
        if stream.ended:
            raise StreamFault(STREAM_CLOSED)
        stream.room -= size
        if stream.room < 0:
            raise StreamFault(FLOW_CONTROL_ERROR)
        if size > end - start:
            self.taken(stream, size - (end - start))
            size = end - start
        if size <= _SMALL_BYTES and not flags & END_STREAM:
            self.patience.spend(FRAME)
        if size:
            stream.received_bytes += size
            if stream.sink is None or not _sunk(stream, memoryview(data)[start:end]):
                stream.pieces.append(data[start:end])
        if stream.body_left != UNKNOWN:
            stream.body_left -= size
            if stream.body_left < 0:
                raise StreamFault(PROTOCOL_ERROR)
        if flags & END_STREAM:
            self._ended(stream)
        self._touch(stream)

    def _pour(self, data: memoryview) -> int:
        """Copy the first frames of data to their streams' sinks; return where the others begin."""
        at, end = self._land(data, 0), len(data)
        read, streams = FRAME_HEAD.unpack_from, self.streams
        while end - at >= FRAME_HEAD_BYTES:
            word, flags, number = read(data, at)
            size: int = word >> 8
            number &= MAX_WINDOW
            stream = streams.get(number)
            if (
                word & 0xFF != DATA
                or flags & PADDED
                or not 0 < size <= LEAST_FRAME_BYTES
                or stream is None
                or stream.ended
                or stream.sink is None
                or stream.sunk_bytes + size > len(stream.sink)
            ):
                break
            try:
                self._begin_landing(stream, size, flags)
            except StreamFault as fault:
                self._end_stream(number, fault.code)
            at = self._land(data, at + FRAME_HEAD_BYTES)
        return at

    def _begin_landing(self, stream: Stream[H], size: int, flags: int) -> None:
        """Begin a frame whose payload goes to a sink."""
        self.frames += 1
        self._landing, self._landing_bytes = stream, size
        self._landing_ends = bool(flags & END_STREAM)
        self._use_room(size)
        stream.room -= size
        if stream.room < 0:
            raise StreamFault(FLOW_CONTROL_ERROR)
        if size <= _SMALL_BYTES and not self._landing_ends:
            self.patience.spend(FRAME)
        if stream.body_left != UNKNOWN:
            stream.body_left -= size
            if stream.body_left < 0 or (self._landing_ends and stream.body_left):
                raise StreamFault(PROTOCOL_ERROR)

    def _land(self, data: memoryview, at: int) -> int:
        """Take what has come of the payload that lands; where the next frame begins."""
        size = min(self._landing_bytes, len(data) - at)
        if not size:
            return at
        self._landing_bytes -= size
        stream, end = self._landing, at + size
        assert stream is not None, "a payload lands"
        if stream.gone:
            return end
        stream.received_bytes += size
        piece = data[at:end]
        if not _sunk(stream, piece):
            stream.pieces.append(bytes(piece))
        if self._landing_ends and not self._landing_bytes:
            stream.ended = True
        self._touch(stream)
        return end

    def _use_room(self, size: int) -> None:
        """Take that many bytes from the connection's window."""
        self._room -= size
        if self._room < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more came than there was room for")
        self._unreturned += size
        if self._unreturned >= CONNECTION_ROOM // 2:
            self._return_room()

    def _return_room(self) -> None:
        # Streams that are not begun while answers wait may send no more than there is room for now.
        if self._unreturned >= CONNECTION_ROOM // 2 and not self.full:
            self._out.append(window_frame(0, self._unreturned))
            self._room += self._unreturned
            self._unreturned = 0

    def _ended(self, stream: Stream[H]) -> None:
        if stream.body_left > 0:
            raise StreamFault(PROTOCOL_ERROR)
        stream.ended = True

    def _expect_late(self, number: int) -> None:
        """Return where what comes on a stream that is gone was on its way when that ended."""
        raise NotImplementedError

    def _end_stream(self, number: int, code: int) -> None:
        """End a stream that cannot go on, by its client's fault."""
        raise NotImplementedError


def _sunk(stream: Stream[H], piece: memoryview) -> bool:
    """Copy a piece of a body to where it belongs; whether there is such a place, and room."""
    sink, end = stream.sink, stream.sunk_bytes + len(piece)
    if sink is None or end > len(sink):
        return False
    sink[stream.sunk_bytes : end] = piece
    stream.sunk_bytes = end
    return True


def unpadded(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the begin and the end of a padded frame's payload; raises `ConnectionFault`."""
    if start == end:
        raise ConnectionFault(FRAME_SIZE_ERROR, "the length of the padding is missing")
    padding = data[start]
    if padding >= end - start:
        raise ConnectionFault(PROTOCOL_ERROR, "there is more padding than frame")
    return start + 1, end - padding
