"""Our connection of HTTP/2 beside the library `h2`, which is handed the same bytes.

Both are servers. After each frame both must have read the same: heads, bodies, ends and resets, and
as much room to send. Where h2 finds a fault, ours ends the stream or the connection; where ours
does, h2 must have found one, but for what ours alone refuses, which is listed here; among it is a
header block that resizes the table more than twice, which no client need send. With the first
fault a run ends, because the two may then differ in what they still take.
"""

import random
from contextlib import suppress
from typing import Any, Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from fuzz.limits import Difference
from hpack import Encoder
from http2_harness import GREETING, USUAL, Served, data, frame, frames_of, settings, widen

from ringbatch.frontend.http2.bodies import STREAM_ROOM
from ringbatch.frontend.http2.connection import LIST_BYTES
from ringbatch.frontend.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)
from ringbatch.frontend.http2.header_text import STATUS_200, field
from ringbatch.frontend.http2.outgoing import MOST_STREAMS

_HEAD: Final = STATUS_200
_TRAILERS: Final = field(b"end", b"0")
_NAMES: Final = (b"x", b"cookie", b"content-type", b"long-name")
_VALUES: Final = (b"", b"1", b"y" * 200, b"\xff")
_ODD_NAMES: Final = (b"te", b"content-length", b"X", b"connection", b":path", b"a b", b"")
_ODD_VALUES: Final = (b"1", b"trailers", b"4", b" x", b"a\nb")
_RESIZE: Final = b"\x3f\xe1\x1f"
"""The header table has 4,096 bytes, as it has from the beginning."""
_WRONG: Final = 0.03
"""Share of a client's steps that keep to no rules."""


class _Frames:
    """A client that mostly keeps to the rules.

    Attributes:
        resizes: number of sizes that the last header block gave the table.

    Args:
        chance: for what it does next.
    """

    def __init__(self, chance: random.Random) -> None:
        self.resizes = 0
        self._chance = chance
        self._encoder = Encoder()
        self._next = 1
        self._open: set[int] = set()
        self._wrong = False

    def next(self) -> list[bytes]:
        """Return the bytes of the next frame, in several pieces if it is a header block."""
        chance = self._chance
        self._wrong = chance.random() < _WRONG
        drawn = chance.random()
        if drawn < 0.3 or not self._open:
            return self._headers()
        if drawn < 0.6:
            return [self._data()]
        if drawn < 0.75:
            return [widen(self._number(), self._drawn([1, 10, 1 << 16], [0, MAX_WINDOW]))]
        if drawn < 0.8:
            number = self._number()
            self._open.discard(number)
            return [frame(RST_STREAM, 0, number, chance.randrange(14).to_bytes(4, "big"))]
        if drawn < 0.88:
            return [self._settings()]
        if drawn < 0.95:
            flags = chance.choice([0, 0, ACK])
            return [frame(PING, flags, 0, bytes(self._drawn([8], [7, 9])))]
        return [self._odd()]

    def _drawn(self, right: list[int], wrong: list[int]) -> int:
        return self._chance.choice(wrong if self._wrong else right)

    def _number(self) -> int:
        chance = self._chance
        if not self._wrong:
            return chance.choice(sorted(self._open))
        return chance.choice([0, 1, 2, 3, self._next, self._next + 2])

    def _headers(self) -> list[bytes]:
        chance = self._chance
        fields = list(USUAL)
        trailers = bool(self._open) and chance.random() < 0.2
        number = self._number() if trailers else self._next
        if trailers:
            fields = [(b"trailer", b"1")]
        elif chance.random() < 0.5:
            names, values = (_ODD_NAMES, _ODD_VALUES) if self._wrong else (_NAMES, _VALUES)
            fields.append((chance.choice(names), chance.choice(values)))
        if self._wrong and chance.random() < 0.3:
            fields = fields[1:]
        block: bytes = self._encoder.encode(fields, huffman=chance.random() < 0.5)
        if self._wrong and chance.random() < 0.3:
            block += bytes([chance.randrange(256)])
        self.resizes = self._drawn([1, 2], [3, 9]) if chance.random() < 0.1 else 0
        block = _RESIZE * self.resizes + block
        flags = self._drawn([END_STREAM], [0]) if trailers else chance.choice([0, 0, END_STREAM])
        if not trailers:
            self._next += 2
            self._open.add(number)
        if flags & END_STREAM:
            self._open.discard(number)
        # h2 takes no head that begins with a frame of padding alone.
        cut = chance.randrange(1, len(block) + 1) if chance.random() < 0.2 and block else len(block)
        first, rest = block[:cut], block[cut:]
        if chance.random() < 0.1:
            first = bytes([2]) + first + bytes(2)
            flags |= PADDED
        if not rest:
            return [frame(HEADERS, flags | END_HEADERS, number, first)]
        return [
            frame(HEADERS, flags, number, first),
            frame(CONTINUATION, END_HEADERS, number, rest),
        ]

    def _data(self) -> bytes:
        chance = self._chance
        payload = chance.randbytes(chance.choice([0, 1, 4, 100, 1 << 14]))
        number, flags = self._number(), chance.choice([0, 0, END_STREAM])
        if payload and chance.random() < 0.2:
            flags |= PADDED
            payload = bytes([self._drawn([0, len(payload) % 250 // 2], [255])]) + payload[1:]
        if flags & END_STREAM:
            self._open.discard(number)
        return data(number, payload, flags)

    def _settings(self) -> bytes:
        chance = self._chance
        drawn = chance.random()
        if drawn < 0.3:
            return frame(SETTINGS, ACK, 0)
        if self._wrong:
            return settings(**{chance.choice(["push", "frame", "window"]): chance.getrandbits(32)})
        if drawn < 0.7:
            return settings(window=chance.choice([0, 100, 1 << 16, 1 << 20]))
        return settings(frame=chance.choice([1 << 14, 20_000, (1 << 24) - 1]))

    def _odd(self) -> bytes:
        chance = self._chance
        if not self._wrong:
            return frame(0x42, 0, self._number(), b"new")
        kinds = [PRIORITY, PUSH_PROMISE, GOAWAY, WINDOW_UPDATE, CONTINUATION, RST_STREAM]
        size = chance.choice([0, 4, 5, 8])
        return frame(chance.choice(kinds), 0, self._number(), chance.randbytes(size))


class _Oracle:
    """h2 as a server with our settings."""

    def __init__(self) -> None:
        config = h2.config.H2Configuration(
            client_side=False, header_encoding=None, normalize_inbound_headers=False
        )
        self.connection = h2.connection.H2Connection(config)
        codes = h2.settings.SettingCodes
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
                codes.INITIAL_WINDOW_SIZE: STREAM_ROOM,
                codes.MAX_HEADER_LIST_SIZE: LIST_BYTES,
            },
        )
        self.connection.initiate_connection()
        self.heads: dict[int, list[tuple[bytes, bytes]]] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.early: set[int] = set()
        """Streams that were answered before their client had ended them."""

    def receive(self, given: bytes) -> bool | None:
        """Take bytes; whether they are well. None where that depends on what is remembered of
        streams that were answered early."""
        self.connection.clear_outbound_data_buffer()
        try:
            events = self.connection.receive_data(given)
        except h2.exceptions.ProtocolError:
            return False
        for event in events:
            self._take(event)
        sent_frames = frames_of(self.connection.data_to_send())
        resets = {one.stream for one in sent_frames if one.kind == RST_STREAM}
        if any(one.kind == GOAWAY for one in sent_frames):
            return False
        if resets and resets <= self.early:
            return None
        return not resets

    def _take(self, event: Any) -> None:
        number = getattr(event, "stream_id", 0)
        if isinstance(event, h2.events.RequestReceived):
            self.heads[number] = [(bytes(name), bytes(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[number] = self.bodies.get(number, b"") + event.data
            with suppress(h2.exceptions.ProtocolError):
                size = event.flow_controlled_length
                self.connection.acknowledge_received_data(size, number)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(number)
        elif isinstance(event, h2.events.StreamReset):
            self.reset.add(number)


class _Ours:
    def __init__(self) -> None:
        self.served = Served(b"")
        self.streams: dict[int, Any] = {}
        self.bodies: dict[int, bytes] = {}

    def receive(self, given: bytes) -> bool:
        """Take bytes; whether they are well."""
        connection = self.served.connection
        for stream in self.served.receive(given):
            self.streams[stream.number] = stream
            body = b"".join(stream.pieces)
            stream.pieces.clear()
            self.bodies[stream.number] = self.bodies.get(stream.number, b"") + body
            connection.taken(stream, len(body))
            if stream.lingers and stream.ended:
                connection.part(stream)
        resets = [one for one in self.served.sent_frames() if one.kind == RST_STREAM]
        return not connection.over and not resets


def compare(seed: int) -> int:
    """A client of that seed; how many frames were read before the first fault.

    Raises:
        Difference: the two read something else.
    """
    chance = random.Random(seed)
    frames, oracle, ours = _Frames(chance), _Oracle(), _Ours()
    oracle.receive(GREETING)
    ours.receive(GREETING)
    for turn in range(60):
        pieces = frames.next()
        verdicts = [oracle.receive(piece) for piece in pieces]
        well = False not in verdicts
        our_verdicts = [ours.receive(piece) for piece in pieces]
        ours_well = all(our_verdicts)
        if well != ours_well and None not in verdicts:
            late = int.from_bytes(pieces[0][5:9], "big") in oracle.early
            strict = well and frames.resizes > 2
            if not (strict or _may_differ(pieces[0], well=well, late=late)):
                raise Difference(f"h2 {well}, ours {ours_well}: {pieces!r}")
        if not (well and ours_well):
            return turn
        _expect_same(oracle, ours)
        if GOAWAY in (piece[3] for piece in pieces):
            # h2 answers no client that has sent GOAWAY; ours does, as such clients still listen.
            return turn
        if chance.random() < 0.3:
            _answer(chance, oracle, ours)
    return 60


def _may_differ(piece: bytes, *, well: bool, late: bool) -> bool:
    """Return whether a fault that only h2, or only ours, finds in the last frame is a known one.

    h2 accepts a bare CONTINUATION, promises of a client, an announced body that has ended with the
    head, and the reset of a stream that has not begun. It reads a reserved bit as part of the
    number. It checks the trailers of a request even if that was answered before its end.
    """
    kind, flags = piece[3:5]
    if not well:
        return (kind == HEADERS and late) or (kind == WINDOW_UPDATE and piece[9] >= 0x80)
    return kind in (CONTINUATION, PUSH_PROMISE, RST_STREAM) or (
        kind == HEADERS and bool(flags & END_STREAM)
    )


def _expect_same(oracle: _Oracle, ours: _Ours) -> None:
    heads = {
        number: (stream.head.method, stream.head.path, stream.head.fields)
        for number, stream in ours.streams.items()
    }
    expected = {}
    for number, fields in oracle.heads.items():
        pseudo = dict(fields[: len(fields) - sum(not n.startswith(b":") for n, _ in fields)])
        rest = [one for one in fields if not one[0].startswith(b":")]
        expected[number] = pseudo[b":method"], pseudo[b":path"], rest
    _same("heads", expected, heads)
    bodies = {number: body for number, body in ours.bodies.items() if body}
    _same("bodies", {number: body for number, body in oracle.bodies.items() if body}, bodies)
    _same("ends", oracle.ended, {n for n, stream in ours.streams.items() if stream.ended})
    connection = ours.served.connection
    gone = {number for number, stream in ours.streams.items() if stream.gone}
    _same("resets", oracle.reset, gone & oracle.reset)
    for number, stream in connection.streams.items():
        room = min(connection._window, stream.window)
        _same("room", oracle.connection.local_flow_control_window(number), room)


def _answer(chance: random.Random, oracle: _Oracle, ours: _Ours) -> None:
    """Answer a request with as much as there is room for. Of a body that is still coming the rest
    is read on for a while, or not."""
    connection = ours.served.connection
    if not connection.streams:
        return
    number = chance.choice(list(connection.streams))
    stream = connection.streams[number]
    if stream.lingers:
        oracle.connection.reset_stream(number, h2.errors.ErrorCodes.NO_ERROR)
        oracle.early.add(number)
        connection.part(stream)
        _same("word", [RST_STREAM], [one.kind for one in ours.served.sent_frames()])
        return
    room = max(0, oracle.connection.local_flow_control_window(number))
    body = bytes(min(room, chance.choice([0, 10, 1 << 14])))
    oracle.connection.send_headers(number, [(b":status", b"200")])
    if body:
        oracle.connection.send_data(number, body)
    connection.begin(stream, _HEAD)
    connection.send(stream, body)
    if stream.ended:
        oracle.connection.end_stream(number)
        connection.end(stream, _TRAILERS)
    elif chance.random() < 0.5:
        stream.lingers = True
        oracle.connection.end_stream(number)
        connection.end(stream, _TRAILERS)
    else:
        oracle.connection.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        oracle.early.add(number)
        connection.reset(stream)
    sent_frames = ours.served.sent_frames()
    sent = b"".join(one.payload for one in sent_frames if one.kind == DATA)
    _same("answer", body, sent)


def _same(subject: str, expected: object, found: object) -> None:
    if expected != found:
        raise Difference(f"{subject}: h2 has {expected!r}, ours {found!r}")
