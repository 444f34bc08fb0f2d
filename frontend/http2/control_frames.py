"""Frames that are about a connection or the state of a stream: settings, windows, resets, pings.

Each costs patience, because it costs its sender little.
"""

from struct import iter_unpack
from typing import Final, TypeVar

from ringbatch.frontend.http2.flood_budget import FRAME, STREAM
from ringbatch.frontend.http2.frames import (
    ACK,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    LEAST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
)
from ringbatch.frontend.http2.outgoing import Outgoing
from ringbatch.frontend.http2.stream import Stream

H = TypeVar("H")

_TABLE_BYTES: Final = 4096
"""Default size of a dynamic table."""
_HEADER_TABLE_SIZE: Final = 1
_ENABLE_PUSH: Final = 2
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_FRAME_SIZE: Final = 5
_LONGEST_FRAME_BYTES: Final = 1 << 16
"""Longest frame that is sent, even to clients that take longer ones: other streams wait."""
_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_OF_STREAMS: Final = (PRIORITY, RST_STREAM)
_OF_CONNECTIONS: Final = (SETTINGS, PING, GOAWAY)


class ControlFrames(Outgoing[H]):
    """A connection, as far as these frames are concerned.

    Attributes:
        settled: whether the client's settings have come.
        leaving: whether the client was asked to begin no further stream.
    """

    __slots__ = ("leaving", "settled")

    def __init__(self) -> None:
        super().__init__()
        self.settled = False
        self.leaving = False

    def _take_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        size = _SIZES.get(kind)
        if size is not None and len(payload) != size:
            raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of kind {kind} has {size} bytes")
        if (kind in _OF_CONNECTIONS and number) or (kind in _OF_STREAMS and not number):
            raise ConnectionFault(PROTOCOL_ERROR, f"a frame of kind {kind} is on stream {number}")
        self.patience.spend(FRAME)
        if self._is_discarded(number):
            return
        if kind == WINDOW_UPDATE:
            self._take_window(number, int.from_bytes(payload, "big") & MAX_WINDOW)
        elif kind == PING:
            if flags & ACK:
                self._ponged(payload)
            else:
                self._out.append(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            self._take_reset(number)
        elif kind == SETTINGS:
            self._take_settings(flags, payload)
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "clients push nothing")
        elif kind == GOAWAY and len(payload) < 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "GOAWAY has eight bytes and more")

    def _take_window(self, number: int, more: int) -> None:
        if not number:
            if not more:
                raise ConnectionFault(PROTOCOL_ERROR, "a window grows by nothing")
            self._widen(more)
            return
        if not self._has_begun(number):
            raise ConnectionFault(PROTOCOL_ERROR, f"stream {number} has not begun")
        if not more:
            raise StreamFault(PROTOCOL_ERROR)
        stream = self.streams.get(number)
        if stream is not None:
            self._widen_stream(stream, more)

    def _take_reset(self, number: int) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            self.patience.spend(STREAM)
            self._drop(stream)
            self._touch(stream)
        elif not self._has_begun(number):
            raise ConnectionFault(PROTOCOL_ERROR, f"stream {number} has not begun")
        else:
            self._lingering.pop(number, None)

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise ConnectionFault(FRAME_SIZE_ERROR, "an acknowledgement says nothing")
            return
        if len(payload) % 6:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a setting has six bytes")
        window = self._first_window
        for name, value in iter_unpack(">HI", payload):
            self.patience.spend(FRAME)
            if name == _INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW:
                    raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of streams is too large")
                window = value
            else:
                self._set(name, value)
        # Every stream has its share of this, so it is done once, however often it is said.
        self._widen_all(window)
        self.settled = True
        self._out.append(frame(SETTINGS, ACK, 0))

    def _set(self, name: int, value: int) -> None:
        if name == _HEADER_TABLE_SIZE:
            self._no_table = self._no_table or value < _TABLE_BYTES
        elif name == _ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(PROTOCOL_ERROR, "to push or not is 1 or 0")
        elif name == _MAX_FRAME_SIZE:
            if not LEAST_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
                raise ConnectionFault(PROTOCOL_ERROR, f"no frame may have {value} bytes")
            self._frame_bytes = min(value, _LONGEST_FRAME_BYTES)

    def _fault_calm(self, text: str) -> None:
        raise ConnectionFault(ENHANCE_YOUR_CALM, text)

    def _touch(self, stream: Stream[H]) -> None:
        """Mark a stream on which something has happened."""
        raise NotImplementedError

    def _has_begun(self, number: int) -> bool:
        """Return whether there is or was a stream of that number."""
        raise NotImplementedError

    def _is_discarded(self, number: int) -> bool:
        """Return whether a stream of that number counts as never begun."""
        raise NotImplementedError

    def _ponged(self, payload: bytes) -> None:
        """Note that a ping was answered."""
        raise NotImplementedError
