"""A stream: one request and its answer.

    state                condition                                          allowed to send
    -------------------  -------------------------------------------------  ------------------
    open                 neither `ended` nor `gone`                         an answer, a reset
    half-closed, remote  `ended`: its client has sent everything            an answer, a reset
    ending               `trailers` and `queue`: the answer's end waits     a reset
                         for room
    half-closed, local   `trailers` and `lingers`: its client may send on,  a reset
                         and nobody reads it
    closed               `gone`: answered and no longer lingering, or       nothing
                         reset by either side

The connection silently drops frames that a state does not allow: a client may cancel its call in
the very moment in which the answer is ready.

There is no state for one that has not begun: it has no object.
"""

from typing import Generic, TypeVar

from ringbatch.frontend.http2.header_rules import UNKNOWN

H = TypeVar("H")

Bytes = bytes | memoryview


class Stream(Generic[H]):
    """Stream of an HTTP/2 connection: one request and its answer.

    Attributes:
        number: of the stream.
        head: what the server made of the head of the request.
        pieces: of its body, that have come and nobody has taken.
        sink: where the next bytes of its body go instead, as long as they find room there; who
            gives it takes it away before it is another's. None where there is none.
        sunk_bytes: that stand there.
        ended: whether no more of it will come.
        gone: whether the stream has ended, and nothing can be sent on it any more.
        begun: True once it is being served; set by the server.
        head_sent: whether the head of the answer is sent.
        lingers: whether the client may send the rest of its body after the end of the answer.
        touched: whether it is among the streams on which something has just happened.
        room: how many bytes its client may send.
        unread: how many of those that came it was not yet given back.
        window: how many bytes may be sent to it.
        body_left: bytes of the body that are to come; `UNKNOWN` where it did not say.
        queue: pieces of the answer that no window had room for.
        waiting_bytes: of these pieces, all of those counted of which the last is not sent.
        trailers: the block that comes behind these; None where the answer has not ended.
        sent_bytes: of the answer.
        received_bytes: of the body.
    """

    __slots__ = (
        "begun",
        "body_left",
        "ended",
        "gone",
        "head",
        "head_sent",
        "lingers",
        "number",
        "pieces",
        "queue",
        "received_bytes",
        "room",
        "sent_bytes",
        "sink",
        "sunk_bytes",
        "touched",
        "trailers",
        "unread",
        "waiting_bytes",
        "window",
    )

    def __init__(self, number: int, head: H, room: int, window: int) -> None:
        self.number = number
        self.head = head
        self.pieces: list[bytes] = []
        self.sink: memoryview | None = None
        self.sunk_bytes = 0
        self.ended = False
        self.gone = False
        self.begun = False
        self.head_sent = False
        self.lingers = False
        self.touched = False
        self.room = room
        self.unread = 0
        self.window = window
        self.body_left = UNKNOWN
        self.queue: list[Bytes] = []
        self.waiting_bytes = 0
        self.trailers: bytes | None = None
        self.sent_bytes = 0
        self.received_bytes = 0

    @property
    def takes_answer(self) -> bool:
        """True if a part of an answer may still be sent."""
        return not self.gone and self.trailers is None

    def look(self) -> tuple[int, bool]:
        """Return the bytes of the answer that its client has taken, and whether others wait."""
        return self.sent_bytes, bool(self.queue)
