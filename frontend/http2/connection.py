"""Server's side of an HTTP/2 connection: takes bytes, and returns the streams that changed.

No thread, clock or socket is known here. `Connection.receive` takes bytes as they come, however
they are cut, and returns the streams that have something new: a head, a piece of a body, its end,
or that they are gone. What is to be sent gathers until `take_output`. What a client does wrong ends
its stream or the connection, in the words of RFC 9113; no exception leaves.
"""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from ringbatch.frontend.http2.bodies import CONNECTION_ROOM, STREAM_ROOM, Bodies, unpadded
from ringbatch.frontend.http2.flood_budget import EACH_SECOND, FRAME, STREAM
from ringbatch.frontend.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_SIZE_ERROR,
    HEADERS,
    INTERNAL_ERROR,
    LEAST_FRAME_BYTES,
    MAX_WINDOW,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    ConnectionFault,
    StreamFault,
    frame,
    goaway_frame,
    settings_frame,
    window_frame,
)
from ringbatch.frontend.http2.header_reader import HeaderReader, Varying
from ringbatch.frontend.http2.header_rules import Http2RequestHead, expect_trailers
from ringbatch.frontend.http2.outgoing import MOST_STREAMS
from ringbatch.frontend.http2.stream import Stream

log = logging.getLogger("ringbatch.frontend")

H = TypeVar("H")

MOST_BLOCK_BYTES: Final = 1 << 17
MOST_PIECES: Final = 32
"""Frames that one header block may come in."""
FIELDS_AT_ONCE: Final = 1000
"""Fields of header blocks that are decoded in one turn: a few milliseconds, during which other
connections wait."""
STREAMS_AT_ONCE: Final = 256
"""Requests that are begun in one turn: the server's part of a refused one takes 20 µs."""
LIST_BYTES: Final = 1 << 14
"""Most bytes that fields may count together, as clients learn; the server refuses more."""
_BEGUN_BYTES: Final = 1 << 10
"""Least bytes that begin a large body."""
_LEAVING: Final = b"leaving?"
"""Payload of a ping: a client that answers it has read that no further stream is wanted."""


class Connection(Bodies[H]):
    """Server's side of one HTTP/2 connection as a state machine; see the module.

    Args:
        read: what the server makes of the head of a request; raises `StreamFault` where that is no
            request at all.
        streams: of it that are served at once.
        list_bytes: the most that the fields of a request may count, as the settings frame says.
        varying: as in `HeaderReader`.

    Attributes:
        headers: what header blocks said.
        behind: whether more has come than was read, and `receive` is to be called again.
        over: whether it is at its end: what is there to be sent is the last.
        closing: whether no further stream is served.
    """

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_number",
        "_block_pieces",
        "_greeted",
        "_last",
        "_rest",
        "_streams",
        "_touched",
        "behind",
        "closing",
        "headers",
        "over",
    )

    def __init__(
        self,
        read: Callable[[Http2RequestHead], H],
        streams: int = MOST_STREAMS,
        list_bytes: int = LIST_BYTES,
        varying: Varying[H] | None = None,
    ) -> None:
        super().__init__()
        self._streams = streams
        self.headers: HeaderReader[H] = HeaderReader(read, self.patience, varying)
        self.behind = False
        self.over = False
        self.closing = False
        self._greeted = False
        self._rest = b""
        self._last = 0
        self._touched: list[Stream[H]] = []
        self._block: bytearray | None = None
        self._block_number = 0
        self._block_flags = 0
        self._block_pieces = 0
        self._out.append(settings_frame({3: streams, 4: STREAM_ROOM, 6: list_bytes}))
        self._out.append(window_frame(0, CONNECTION_ROOM - FIRST_WINDOW))

    @property
    def unfinished(self) -> bool:
        """True while a frame, a header block or the greeting has begun and not ended."""
        whole = self._greeted and self._block is None and not self._landing_bytes
        return bool(self._rest) or not whole

    def receive(self, data: bytes) -> list[Stream[H]]:
        """Take received bytes, or read on in those received before.

        Returns:
            The streams with something new, in the order in which it came.
        """
        self.behind = False
        if self.over:
            return []
        touched: list[Stream[H]] = []
        self._touched = touched
        try:
            self._read(data)
        except Exception as error:
            self._fail(error)
        for stream in touched:
            stream.touched = False
        return touched

    def receive_in_place(self, data: memoryview) -> tuple[int, list[Stream[H]]]:
        """Receive as `receive`, from borrowed memory: bytes for a sink are copied straight there.

        Returns:
            How many of them were read, and the streams. If not all were, the caller may give
            streams a sink before the rest is read.
        """
        self.behind = False
        if self.over:
            return len(data), []
        touched: list[Stream[H]] = []
        self._touched = touched
        at = len(data)
        try:
            at = self._read_in_place(data)
        except Exception as error:
            self._fail(error)
        for stream in touched:
            stream.touched = False
        return at, touched

    def _read(self, data: bytes) -> None:
        if self._landing_bytes:
            data = data[self._land(memoryview(data), 0) :]
        rest, self._rest = self._rest, b""
        at = self._missing(rest, data) if rest and self._greeted else 0
        if at:
            # So that of all that has come only this frame is copied.
            self._cut(rest + data[:at], 0)
        elif rest:
            data = rest + data
        if not self._greeted:
            at = self._greet(data)
        at = self._cut(data, at)
        if at < len(data):
            self._rest = data[at:]

    def _read_in_place(self, data: memoryview) -> int:
        if self._rest and self._block is None and self._pour(memoryview(self._rest)):
            self._rest = b""
        if self._rest or self._block is not None or not self._greeted:
            at, end = 0, self._missing(self._rest, data) or len(data)
        else:
            at = self._pour(data)
            end = _next_sink(data, at)
        if end > at:
            self._read(bytes(data[at:end]))
        if self.behind:
            self._rest += data[end:]
            end = len(data)
        return end

    @staticmethod
    def _missing(rest: bytes, data: bytes | memoryview) -> int:
        """Return how many bytes end the one frame that has begun.

        It is 0 if there is more, or they have not all come.
        """
        head = rest[:FRAME_HEAD_BYTES]
        head += data[: FRAME_HEAD_BYTES - len(head)]
        if len(head) < FRAME_HEAD_BYTES:
            return 0
        missing: int = FRAME_HEAD_BYTES + (FRAME_HEAD.unpack(head)[0] >> 8) - len(rest)
        return missing if 0 < missing <= len(data) else 0

    def tick(self) -> None:
        """Note that another second has passed."""
        self.patience.earn(EACH_SECOND)

    def probe(self) -> None:
        """Have the client say that it is there."""
        self._out.append(frame(PING, 0, 0, bytes(len(_LEAVING))))

    def leave(self) -> None:
        """Ask the client to begin no further stream; those that are on their way are served."""
        if not self.leaving and not self.over:
            self.leaving = True
            self._out.append(goaway_frame(MAX_WINDOW, NO_ERROR, ""))
            self._out.append(frame(PING, 0, 0, _LEAVING))

    def close(self) -> None:
        """Serve no further stream; a GOAWAY frame names the last that is served."""
        if not self.closing and not self.over:
            self.leaving = self.closing = True
            self._out.append(goaway_frame(self._last, NO_ERROR, ""))

    def give_up(self, code: int, text: str) -> list[Stream[H]]:
        """End the connection, and all its streams, which are returned."""
        self._touched = []
        if not self.over:
            self._end(code, text)
        return self._touched

    def _fail(self, error: Exception) -> None:
        """End the connection, because reading has raised.

        After an error of the server, too, the state of the connection is unsure.
        """
        if isinstance(error, ConnectionFault):
            self._end(error.code, error.text)
        else:
            log.error("http2: a connection ends, because reading it failed", exc_info=error)
            self._end(INTERNAL_ERROR, "the server has failed")

    def _end(self, code: int, text: str) -> None:
        self.over = True
        for stream in list(self.streams.values()):
            self._drop(stream)
            self._touch(stream)
        self._out.append(goaway_frame(self._last, code, text))

    def _touch(self, stream: Stream[H]) -> None:
        if not stream.touched:
            stream.touched = True
            self._touched.append(stream)

    def _greet(self, data: bytes) -> int:
        """Return where the frames begin; 0 if that is yet to come."""
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFault(PROTOCOL_ERROR, "this is not HTTP/2")
        self._greeted = len(data) >= len(PREFACE)
        return len(PREFACE) if self._greeted else 0

    def _cut(self, data: bytes, at: int) -> int:
        """Take every whole frame, or as many as there may be at once; where the next begins."""
        end = len(data)
        if not self._greeted:
            return at
        read = FRAME_HEAD.unpack_from
        headers = self.headers
        most = headers.decoded + FIELDS_AT_ONCE
        touched = self._touched
        while end - at >= FRAME_HEAD_BYTES:
            if headers.decoded >= most or len(touched) >= STREAMS_AT_ONCE:
                self.behind = True
                break
            word, flags, number = read(data, at)
            size, kind = word >> 8, word & 0xFF
            if size > LEAST_FRAME_BYTES:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame has {size} bytes")
            start = at + FRAME_HEAD_BYTES
            if start + size > end:
                break
            at = start + size
            number &= MAX_WINDOW
            if self._block is not None:
                self._continue(kind, flags, number, data[start:at])
                continue
            self.frames += 1
            try:
                if kind == DATA:
                    self._take_data(data, start, at, flags, number)
                elif kind == HEADERS:
                    self._take_headers(data[start:at], flags, number)
                elif not self.settled and kind != SETTINGS:
                    raise ConnectionFault(PROTOCOL_ERROR, "settings come first")
                elif kind == CONTINUATION:
                    raise ConnectionFault(PROTOCOL_ERROR, "nothing is to be continued")
                else:
                    self._take_control(kind, flags, number, data[start:at])
            except StreamFault as fault:
                self._end_stream(number, fault.code)
        return at

    def _end_stream(self, number: int, code: int) -> None:
        """End a stream that cannot go on, by its client's fault."""
        self.patience.spend(STREAM)
        stream = self.streams.get(number)
        if stream is not None:
            self._drop(stream)
            self._touch(stream)
        self._send_reset(number, code)

    def _take_headers(self, block: bytes, flags: int, number: int) -> None:
        if not self.settled:
            raise ConnectionFault(PROTOCOL_ERROR, "settings come first")
        if not number & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "a stream of a client has an odd number")
        start, end = 0, len(block)
        if flags & PADDED:
            start, end = unpadded(block, start, end)
        if flags & PRIORITIZED:
            start += 5
            if start > end:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a priority has five bytes")
        if end - start < len(block):
            block = block[start:end]
        if flags & END_HEADERS:
            self._take_block(block, flags, number)
        else:
            self._block = bytearray(block)
            self._block_number, self._block_flags, self._block_pieces = number, flags, 1

    def _continue(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        assert self._block is not None, "it is to be continued"
        if kind != CONTINUATION or number != self._block_number:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is to be continued")
        self._block_pieces += 1
        self._block += payload
        if len(self._block) > MOST_BLOCK_BYTES or self._block_pieces > MOST_PIECES:
            self._fault_calm("a header block is too long")
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), None
            self.frames += 1
            try:
                self._take_block(block, self._block_flags, number)
            except StreamFault as fault:
                self._end_stream(number, fault.code)

    def _take_block(self, block: bytes, flags: int, number: int) -> None:
        if number > self._last:
            self._begin(block, flags, number)
            return
        # Decode it even if the stream is gone: it changes the header table.
        fields = self.headers.fields(block)
        stream = self.streams.get(number)
        if stream is None:
            self._expect_late(number)
            return
        if stream.ended:
            raise StreamFault(STREAM_CLOSED)
        expect_trailers(fields)
        if not flags & END_STREAM:
            raise StreamFault(PROTOCOL_ERROR)
        self._ended(stream)
        self._touch(stream)

    def _begin(self, block: bytes, flags: int, number: int) -> None:
        if self.closing:
            self.headers.fields(block)
            self.patience.spend(STREAM)
            return
        self._last = number
        head, length = self.headers.request(block)
        if len(self.streams) >= self._streams:
            raise StreamFault(REFUSED_STREAM)
        stream = Stream(number, head, STREAM_ROOM, self._first_window)
        stream.body_left = length
        if flags & END_STREAM:
            self._ended(stream)
        self.streams[number] = stream
        self._touch(stream)

    def _expect_late(self, number: int) -> None:
        """Return where what comes on a stream that is gone was on its way when that ended."""
        if number in self._lingering or self._is_discarded(number):
            self.patience.spend(FRAME)
        elif self._has_begun(number):
            raise ConnectionFault(STREAM_CLOSED, f"stream {number} has ended")
        else:
            raise ConnectionFault(PROTOCOL_ERROR, f"stream {number} has not begun")

    def _has_begun(self, number: int) -> bool:
        return number <= self._last and bool(number & 1)

    def _is_discarded(self, number: int) -> bool:
        # GOAWAY says that it is not served, but came after the client had begun it.
        return self.closing and number > self._last and bool(number & 1)

    def _ponged(self, payload: bytes) -> None:
        if payload == _LEAVING and self.leaving:
            self.close()


def _next_sink(data: memoryview, at: int) -> int:
    """Return the end of the first frame after which a stream may get a sink.

    Without one, it is the end of the data.
    """
    end = len(data)
    while end - at >= FRAME_HEAD_BYTES:
        word, flags, _ = FRAME_HEAD.unpack_from(data, at)
        at += FRAME_HEAD_BYTES + (word >> 8)
        if word & 0xFF == DATA and word >> 8 >= _BEGUN_BYTES and not flags & END_STREAM:
            return min(at, end)
    return end
