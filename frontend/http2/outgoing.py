"""Sending of answers over a connection, as the client's windows have room for them.

Frames that find room are sent in the order in which they were given; of streams that wait for room,
each sends a frame in turn. The waiting bytes are counted, so that the server begins no more streams
until the client has taken some.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from ringbatch.frontend.http2.flood_budget import ANSWER, SENT, STREAMS, FloodBudget
from ringbatch.frontend.http2.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_HEAD,
    HEADERS,
    LEAST_FRAME_BYTES,
    MAX_WINDOW,
    NO_ERROR,
    ConnectionFault,
    StreamFault,
    reset_frame,
)
from ringbatch.frontend.http2.header_text import NO_TABLE
from ringbatch.frontend.http2.stream import Bytes, Stream

H = TypeVar("H")

MOST_STREAMS: Final = 1024
"""Calls of one connection that are under way at once."""
_LINGERING: Final = 2 * MOST_STREAMS
_WAITING_BYTES: Final = 1 << 24
ANSWERS: Final = 4
"""Answers of the largest size that may wait, if they are more than `_WAITING_BYTES`: while a client
takes one, the next is made."""
_WORTH_BYTES: Final = 1 << 10
"""A shorter frame was all that its client had room for."""
_END: Final = END_HEADERS | END_STREAM


class Outgoing(Generic[H]):
    """The sending half of a connection. It sends only frames that a stream's state allows.

    Attributes:
        streams: those that are not gone, by number.
        patience: with its client.
        writable: whether pieces of answers may be sent; otherwise they wait, as without a window.
        waiting_bytes: of answers that their client has yet to make room for. Pieces count whole
            until the last of them is sent, as they take memory.
        most_waiting_bytes: beyond these nothing more is to be begun.
        reliefs: how often they became less.
        large: whether what is to be sent has long pieces.
    """

    __slots__ = (
        "_blocked",
        "_first_window",
        "_frame_bytes",
        "_lingering",
        "_no_table",
        "_out",
        "_waiting",
        "_window",
        "large",
        "most_waiting_bytes",
        "patience",
        "reliefs",
        "streams",
        "waiting_bytes",
        "writable",
    )

    def __init__(self) -> None:
        self.streams: dict[int, Stream[H]] = {}
        self.patience = FloodBudget()
        self.writable = True
        self.waiting_bytes = 0
        self.most_waiting_bytes = _WAITING_BYTES
        self.reliefs = 0
        self.large = False
        self._out: list[Bytes] = []
        self._window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._frame_bytes = LEAST_FRAME_BYTES
        self._no_table = False
        """True if the next block is to say that it uses no table."""
        self._lingering: dict[int, None] = {}
        """Streams that were ended here before their clients had ended them; what is still on its
        way on them is nobody's fault."""
        self._waiting: dict[int, Stream[H]] = {}
        """Streams with pieces to send that wait for room on the connection, or for its socket."""
        self._blocked: dict[int, Stream[H]] = {}
        """Streams without room in their own windows. They may be many, so frames that make room
        elsewhere do not have them looked at."""

    @property
    def waits(self) -> bool:
        """True if pieces of answers wait for their client to make room."""
        return bool(self._waiting or self._blocked)

    @property
    def full(self) -> bool:
        """True if so many bytes wait that no further answer is to be begun."""
        return self.waiting_bytes > self.most_waiting_bytes

    @property
    def has_output(self) -> bool:
        """True if there are bytes to be sent."""
        return bool(self._out)

    def take_output(self) -> list[Bytes]:
        """Take the bytes that are to be sent now, in order."""
        out, self._out = self._out, []
        self.large = False
        return out

    def answer(self, stream: Stream[H], head: bytes, body: bytes, trailers: bytes) -> None:
        """Answer a request with a body that is short and all there.

        Args:
            stream: on which nothing was sent.
            head, trailers: their blocks.
            body: is sent as it is.
        """
        if not stream.takes_answer:
            return
        size, number = len(body), stream.number
        if self._no_table or not self._finds_room(stream, size):
            self.begin(stream, head)
            self.send(stream, body)
            self.end(stream, trailers)
            return
        self._window -= size
        self.patience.earn(ANSWER)
        pack = FRAME_HEAD.pack
        self._out.append(
            b"".join(
                (
                    pack(len(head) << 8 | HEADERS, END_HEADERS, number),
                    head,
                    pack(size << 8, 0, number),
                    body,
                    pack(len(trailers) << 8 | HEADERS, _END, number),
                    trailers,
                )
            )
        )
        self._finished(stream)

    def begin(self, stream: Stream[H], head: bytes) -> None:
        """Send the head of an answer, more of which is to come."""
        if not stream.takes_answer:
            return
        stream.head_sent = True
        self._send_block(stream.number, head, END_HEADERS)

    def send(self, stream: Stream[H], data: bytes) -> None:
        """Send a piece of the body, as soon as there is room for it."""
        if not data or not stream.takes_answer:
            return
        size = len(data)
        if not stream.queue and self._finds_room(stream, size):
            self._out.append(FRAME_HEAD.pack(size << 8, 0, stream.number))
            self._out.append(data)
            self._window -= size
            stream.window -= size
            stream.sent_bytes += size
            self.patience.earn(SENT)
            return
        stream.queue.append(memoryview(data) if size > LEAST_FRAME_BYTES else data)
        if len(stream.queue) == 1:
            self._waiting[stream.number] = stream
            self._send_frames(stream)
        if stream.queue:
            stream.waiting_bytes += size
            self.wait(size)

    def has_room(self, count: int, size: int) -> bool:
        """Return whether so many pieces of that size can be sent now, each in one frame.

        Each stream has a window of its own.
        """
        return self.writable and size <= self._frame_bytes and count * size <= self._window

    def send_frames(self, streams: Sequence[Stream[H]], frames: bytes, size: int) -> None:
        """Send a further piece of several bodies, in frames that are made; they find room.

        Args:
            streams: of the bodies; no piece of them waits.
            frames: one for each stream, in this order.
            size: of each piece.
        """
        self._out.append(frames)
        self._window -= size * len(streams)
        for stream in streams:
            stream.window -= size
            stream.sent_bytes += size
        self.patience.earn(SENT * len(streams))

    def _finds_room(self, stream: Stream[H], size: int) -> bool:
        """Return whether so many bytes can be sent on a stream now, in one frame."""
        return (
            size <= self._frame_bytes
            and size <= self._window
            and size <= stream.window
            and self.writable
        )

    def wait(self, size: int) -> None:
        """Count an answer of so many bytes that waits for its client; below 0, so many fewer."""
        self.waiting_bytes += size
        if size > 0:
            self.most_waiting_bytes = max(self.most_waiting_bytes, ANSWERS * size)
        elif size < 0:
            self.reliefs += 1
            self._return_room()

    def inform(self, stream: Stream[H], head: bytes) -> None:
        """Send the head of an answer that is none yet, such as of status 100."""
        if not stream.takes_answer:
            return
        self._send_block(stream.number, head, END_HEADERS)

    def end(self, stream: Stream[H], trailers: bytes) -> None:
        """End an answer once what was given before is sent; its head, if there was none.

        Args:
            stream: of the answer.
            trailers: their block; empty where there are none.
        """
        if not stream.takes_answer:
            return
        stream.trailers = trailers
        if not stream.queue:
            self._send_end(stream.number, trailers)
            self._finished(stream)

    def part(self, stream: Stream[H]) -> None:
        """End a stream once the whole answer is sent; ask a client that still sends to stop."""
        stream.lingers = False
        if stream.trailers is not None and not stream.queue and not stream.gone:
            self._finished(stream)

    def reset(self, stream: Stream[H], code: int = CANCEL) -> None:
        """End a stream at any point of its answer."""
        if stream.gone:
            return
        self._drop(stream)
        self._send_reset(stream.number, code)

    def go_on(self) -> None:
        """Send what waits, as far as there is room for it."""
        moved = True
        while moved and self._window > 0 and self.writable:
            moved = False
            for stream in list(self._waiting.values()):
                if self._window <= 0:
                    return
                # A stream that had a turn waits behind the others.
                self._waiting[stream.number] = self._waiting.pop(stream.number)
                moved |= self._send_frame(stream)

    def _send_frames(self, stream: Stream[H]) -> None:
        while self.writable and self._send_frame(stream):
            pass

    def _send_frame(self, stream: Stream[H]) -> bool:
        """Send a piece of what waits on a stream; whether there may be more to send."""
        if not stream.queue:
            return False
        if stream.window <= 0:
            if self._waiting.pop(stream.number, None) is not None:
                self._blocked[stream.number] = stream
            return False
        piece = stream.queue[0]
        size = min(len(piece), self._frame_bytes, self._window, stream.window)
        if size <= 0:
            return False
        self._out.append(FRAME_HEAD.pack(size << 8 | DATA, 0, stream.number))
        if size == len(piece):
            del stream.queue[0]
            self._out.append(piece)
        else:
            stream.queue[0] = piece[size:]
            self._out.append(piece[:size])
            self.large = True
        self._window -= size
        stream.window -= size
        stream.sent_bytes += size
        if size >= _WORTH_BYTES or size == len(piece):
            self.patience.earn(SENT)
        if stream.queue:
            return True
        del self._waiting[stream.number]
        self._waits_no_longer(stream)
        if stream.trailers is not None:
            self._send_end(stream.number, stream.trailers)
            self._finished(stream)
        return False

    def _send_end(self, number: int, trailers: bytes) -> None:
        self.patience.earn(ANSWER)
        if trailers:
            self._send_block(number, trailers, _END)
        else:
            self._out.append(FRAME_HEAD.pack(DATA, END_STREAM, number))

    def _send_block(self, number: int, block: bytes, flags: int) -> None:
        if self._no_table:
            self._no_table = False
            block = NO_TABLE + block
        if len(block) > LEAST_FRAME_BYTES:
            self._send_pieces(number, block, flags)
            return
        self._out.append(FRAME_HEAD.pack(len(block) << 8 | HEADERS, flags, number) + block)

    def _send_pieces(self, number: int, block: bytes, flags: int) -> None:
        """Send a block that one frame does not hold; nothing may come between its pieces."""
        pack, end = FRAME_HEAD.pack, len(block) - 1
        for at in range(0, len(block), LEAST_FRAME_BYTES):
            piece = block[at : at + LEAST_FRAME_BYTES]
            kind = CONTINUATION if at else HEADERS
            own = flags & END_STREAM if not at else 0
            last = END_HEADERS if at + LEAST_FRAME_BYTES > end else 0
            self._out.append(pack(len(piece) << 8 | kind, own | last, number) + piece)

    def _finished(self, stream: Stream[H]) -> None:
        """End the server's side of a stream: its answer is sent."""
        if stream.lingers and not stream.ended:
            return
        stream.gone = True
        del self.streams[stream.number]
        if not stream.ended:
            self._send_reset(stream.number, NO_ERROR)

    def _drop(self, stream: Stream[H]) -> None:
        """Forget an ended stream, on which nothing more is sent."""
        stream.gone = True
        stream.queue.clear()
        self._waits_no_longer(stream)
        self._waiting.pop(stream.number, None)
        self._blocked.pop(stream.number, None)
        self.streams.pop(stream.number, None)

    def _waits_no_longer(self, stream: Stream[H]) -> None:
        size, stream.waiting_bytes = stream.waiting_bytes, 0
        self.wait(-size)

    def _return_room(self) -> None:
        """Let the client send again, if it had to take answers first."""
        raise NotImplementedError

    def _send_reset(self, number: int, code: int) -> None:
        self._out.append(reset_frame(number, code))
        self._linger(number)

    def _linger(self, number: int) -> None:
        self._lingering[number] = None
        if len(self._lingering) > _LINGERING:
            del self._lingering[next(iter(self._lingering))]

    def _widen(self, more: int) -> None:
        """Use the room that the client makes on the connection."""
        self._window += more
        if self._window > MAX_WINDOW:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "the window is too large")
        self.go_on()

    def _widen_all(self, first_window: int) -> None:
        """Take another window for streams, those that exist among them."""
        more = first_window - self._first_window
        if not more:
            return
        self.patience.spend(len(self.streams) // STREAMS)
        self._first_window = first_window
        for stream in self.streams.values():
            stream.window += more
            if stream.window > MAX_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of a stream is too large")
            self._unblock(stream)
        self.go_on()

    def _widen_stream(self, stream: Stream[H], more: int) -> None:
        """Use the room that the client makes on a stream."""
        stream.window += more
        if stream.window > MAX_WINDOW:
            raise StreamFault(FLOW_CONTROL_ERROR)
        self._unblock(stream)
        self._send_frames(stream)

    def _unblock(self, stream: Stream[H]) -> None:
        if stream.window > 0 and self._blocked.pop(stream.number, None) is not None:
            self._waiting[stream.number] = stream
