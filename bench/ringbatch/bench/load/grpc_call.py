"""Unary calls over gRPC on a connection of a generator. Pure.

Requests are bytes that were made beforehand, of which only the number of the stream is new.
"""

import struct
from collections.abc import Sequence
from typing import Final

from ringbatch.bench.load import http2
from ringbatch.bench.load.answers import BadAnswer
from ringbatch.bench.load.exchange import Requests, Traces
from ringbatch.bench.load.http2 import Frame, Kind
from ringbatch.bench.load.infer_message import outputs_of
from ringbatch.bench.load.outcome import GRPC, WRONG

METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"
_WELL: Final = 200
_PREFIX: Final = struct.Struct(">BI")
_REPLENISH: Final = 2**30
"""Bytes that have come, after which the peer is told that it may send as many again."""
_KNOWN_MAX: Final = 256
_IDLE: Final = -1
_TRACE: Final = b"\0\x0btraceparent\x37"
"""Start of a field that enters no table, up to its value of 55 characters (RFC 7541, 6.2.2)."""


def call_head(
    authority: str, metadata: Sequence[tuple[str, str]], *, enters: bool = False
) -> bytes:
    """Return the header block of each call, or of only the first if its fields enter the table.

    Args:
        authority: of the call, unless the metadata has a host.
        metadata: of the call.
        enters: see `http2.header_block`.
    """
    rest = [(name.lower(), value) for name, value in metadata]
    named = [value for name, value in rest if name == "host"]
    return http2.header_block(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", METHOD),
            (":authority", named[-1] if named else authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *(field for field in rest if field[0] != "host"),
        ],
        enters=enters,
    )


def prefixed(message: bytes) -> bytes:
    """Return a message as a call has it: not compressed, its length before it."""
    return _PREFIX.pack(0, len(message)) + message


class GrpcCall:
    """An `Exchange`: one call at a time, each on a stream of its own.

    Args:
        requests: the requests to send.
        traces: makes the trace of each call; None for no traces. With traces, the fields of the
            first head enter the table, and each further call has indices in their place. So do
            calls of grpcio and other clients.
    """

    def __init__(self, requests: Requests, traces: Traces | None = None) -> None:
        # Only who asks over gRPC needs it.
        from hpack import Decoder

        self.reply = b""
        self.closes = False
        self._requests, self._traces = requests, traces
        self._head = requests.call_head
        self._indices = b""
        if traces is not None:
            self._indices = http2.indices(len([*Decoder().decode(requests.call_head)]))
        self._decoder = Decoder()
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._statuses: dict[bytes, int | None] = {}
        self._right: set[bytes] = set()
        self._data = bytearray()
        self._stream = -1
        self._which = _IDLE
        self._rest = b""
        self._windows = http2.WINDOW_FIRST, http2.WINDOW_FIRST
        """Bytes that may be sent on the connection, and on the stream."""
        self._stream_window = http2.WINDOW_FIRST
        self._come = 0
        self._block: bytes | None = None
        self._block_flags = 0
        self._answer = b""
        self._status: int | None = None

    @property
    def answer(self) -> bytes:
        """The message of the answer that was whole last."""
        return self._answer[_PREFIX.size :]

    def greeting(self) -> bytes:
        """Return the client's settings."""
        return http2.greeting()

    def ask(self, which: int, number: int) -> bytes:
        """Return the call, or as much of it as the server has room for."""
        self._stream += 2
        self._which = which
        self._answer, self._status = b"", None
        self._windows = self._windows[0], self._stream_window
        self._rest = self._requests.messages[which]
        head = self._head
        if self._traces is not None:
            self._head = self._indices
            head += _TRACE + self._traces.make()
        return http2.frame(Kind.HEADERS, http2.END_HEADERS, self._stream, head) + self._more()

    def take(self, data: bytes) -> int | None:
        """Take received bytes; return the status once the answer is whole.

        Raises:
            BadAnswer: it cannot be read, or the call was reset.
        """
        self._data += data
        found = None
        for one in http2.frames_of(self._data):
            if one.stream == 0:
                self._take_of_connection(one)
            elif one.stream == self._stream and self._which != _IDLE and self._take_of_call(one):
                found = self._ended()
        if self._come > _REPLENISH:
            self.reply += http2.more_room(self._come)
            self._come = 0
        return found

    def _more(self) -> bytes:
        """Return the part of the message that may be sent now."""
        size = min(len(self._rest), *self._windows)
        if size <= 0:
            return b""
        now, self._rest = self._rest[:size], self._rest[size:]
        self._windows = self._windows[0] - size, self._windows[1] - size
        parts = [now[at : at + http2.DATA_MAX] for at in range(0, size, http2.DATA_MAX)]
        ends = [0] * (len(parts) - 1) + [0 if self._rest else http2.END_STREAM]
        return b"".join(
            http2.frame(Kind.DATA, end, self._stream, part)
            for part, end in zip(parts, ends, strict=True)
        )

    def _take_of_connection(self, found: Frame) -> None:
        if found.kind == Kind.SETTINGS and not found.flags & http2.ACK:
            self.reply += http2.frame(Kind.SETTINGS, http2.ACK, 0, b"")
            if (window := http2.stream_window(found.payload)) is not None:
                grown = window - self._stream_window
                self._windows = self._windows[0], self._windows[1] + grown
                self._stream_window = window
                self.reply += self._more()
        elif found.kind == Kind.PING and not found.flags & http2.ACK:
            self.reply += http2.frame(Kind.PING, http2.ACK, 0, found.payload)
        elif found.kind == Kind.WINDOW_UPDATE:
            self._windows = self._windows[0] + http2.word(found.payload), self._windows[1]
            self.reply += self._more()
        elif found.kind == Kind.GOAWAY:
            self.closes = True
            if self._which != _IDLE and http2.word(found.payload) < self._stream:
                raise BadAnswer("the server closes the connection and takes no further call")

    def _take_of_call(self, found: Frame) -> bool:
        """Take a frame of the call; return whether the call has ended."""
        if found.kind == Kind.DATA:
            self._answer += found.payload
            self._come += len(found.payload)
        elif found.kind == Kind.WINDOW_UPDATE:
            self._windows = self._windows[0], self._windows[1] + http2.word(found.payload)
            self.reply += self._more()
        elif found.kind == Kind.RST_STREAM:
            code = http2.word(found.payload)
            raise BadAnswer(f"the server reset a call with the code {code} of HTTP/2")
        elif found.kind in (Kind.HEADERS, Kind.CONTINUATION):
            if found.kind == Kind.HEADERS:
                self._block, self._block_flags = b"", found.flags
            self._block = (self._block or b"") + found.payload
            if not found.flags & http2.END_HEADERS:
                return False
            self._take_block(self._block)
            return bool(self._block_flags & http2.END_STREAM)
        return bool(found.kind == Kind.DATA and found.flags & http2.END_STREAM)

    def _take_block(self, block: bytes) -> None:
        # Of blocks that say all by themselves the same bytes mean the same.
        if block not in self._statuses:
            if len(self._statuses) >= _KNOWN_MAX:
                self._statuses.clear()
            self._statuses[block] = self._read(block)
        status = self._statuses[block]
        if status is not None:
            self._status = status

    def _read(self, block: bytes) -> int | None:
        from hpack import HPACKError

        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise BadAnswer(f"headers that cannot be read: {error}") from None
        found = fields.get(b"grpc-status")
        if found is not None:
            if not found.isdigit():
                raise BadAnswer(f"a grpc-status that is no number: {found[:40]!r}")
            return GRPC + int(found) if int(found) else _WELL
        http_status = fields.get(b":status", b"")
        return None if http_status == b"200" or not http_status.isdigit() else int(http_status)

    def _ended(self) -> int:
        which, self._which, self._rest = self._which, _IDLE, b""
        if self._status is None:
            raise BadAnswer("an answer without grpc-status")
        if self._status != _WELL or not self._requests.references:
            return self._status
        return _WELL if self._is_right(which) else WRONG

    def _is_right(self, which: int) -> bool:
        if len(self._answer) < _PREFIX.size:
            return False
        compressed, size = _PREFIX.unpack_from(self._answer)
        message = self._answer[_PREFIX.size :]
        if compressed or size != len(message):
            return False
        try:
            outputs, tensor_bytes = outputs_of(message)
            key = which.to_bytes(4) + tensor_bytes
            if key in self._right:
                return True
            right = self._requests.references[which].outputs_are(outputs())
        except (ValueError, struct.error):
            return False
        if right and len(self._right) < _KNOWN_MAX:
            self._right.add(key)
        return right
