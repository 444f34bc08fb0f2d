"""Connections that carry much in small pieces: chunks, frames, messages, members, blocks.

They come in reads of some size, and are answered by a service that does nothing else, so that what
takes time is the reading.
"""

import gzip
import random
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from fuzz.requests import V1, bare, request
from fuzz.sides import Side, converse, grpc_side, http_side
from fuzz.turns import Turns
from grpc_harness import INFER, STREAM
from http2_harness import GREETING, block, frame, headers
from http2_harness import data as data_frame

from ringbatch.frontend.http2.frames import (
    DATA,
    END_STREAM,
    PADDED,
    PING,
    SETTINGS,
    WINDOW_UPDATE,
)
from ringbatch.frontend.http2.header_text import field

_READS: Final = (100, 1460, 1 << 14, 256_000)
"""Bytes for each read of a connection.

They range from a client's little pieces, over packets, to the most that an event loop reads.
"""
_ONE_BY_ONE: Final = 300

Filled = Callable[[int], bytes]
"""Function that makes all bytes of a client, about so many."""


# What is sent over HTTP/1.1


def _of_length(chance: random.Random) -> Filled:
    # The second is Falcon's, as is every path that is spelled so.
    lines = chance.choice([(), (b"Expect: 100-continue",)])
    piece = chance.choice([b"1,", b"[1,2],", b'{"a":1},'])
    return lambda size: request(*lines, body=piece * (size // len(piece)))


def _pipelined(chance: random.Random) -> Filled:
    piece = chance.choice([request(), request(b"Expect: 100-continue"), _GET, b"\r\n" + _GET])
    return lambda size: piece * (size // len(piece))


def _in_chunks(chance: random.Random, *lines: bytes, packed: Filled | None = None) -> Filled:
    each = chance.choice([1, 1, 2, 16, 100])
    zeros = b"0" * chance.choice([0, 0, 1, 9])
    extension = chance.choice([b"", b"", b";a=b", b';a="%b"' % (b"b" * 40)])
    trailers = chance.choice([b"", b"a: b\r\n" * 20, b"a: b\r\n" * (1 << 14)])
    head = b"%b%x%b\r\n" % (zeros, each, extension)
    last = b"0\r\n%b\r\n" % trailers

    def filled(size: int) -> bytes:
        if packed is None:
            chunks = (head + b"1" * each + b"\r\n") * (size // (len(head) + each + 2))
        else:
            body = packed(size)
            chunks = b"".join(
                b"%b%x\r\n%b\r\n" % (zeros, len(piece), piece)
                for piece in (body[at : at + each] for at in range(0, len(body), each))
            )
        return bare(b"Transfer-Encoding: chunked", *lines, body=chunks + last)

    return filled


def _upgrading(chance: random.Random) -> Filled:
    """Heads that ask for HTTP/2, or for something else, one after the other."""
    wish = chance.choice([b"h2c", b"h2c", b"websocket"])
    settings = b"HTTP2-Settings: %b" % (b"AAMAAABk" * chance.choice([1, 100]))
    lines = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: %b" % wish, settings]
    piece = request(*lines)
    return lambda size: piece * (size // len(piece))


def _coded(chance: random.Random, coding: str) -> Filled:
    packed, line = _packed(chance, coding), b"Content-Encoding: " + coding.encode()
    if chance.random() < 0.7:
        return lambda size: request(line, body=packed(size))
    return _in_chunks(chance, line, packed=packed)


_GET: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


# Compressed bodies

_EMPTY_BLOCKS: Final = (b"\0\0\0\xff\xff", b"\x02\x08\x20\x80\0")
"""A stored one, and four that are coded."""
_LAST_BLOCK: Final = b"\3\0"


def _packed(chance: random.Random, coding: str) -> Filled:
    """A compressed body that is sound, and costs its reader much for a byte."""
    kind = chance.randrange(5 if coding == "gzip" else 4)
    if kind <= 1:
        blank = _EMPTY_BLOCKS[kind]
        front = b"\x1f\x8b\x08" + bytes(7) if coding == "gzip" else b"\x78\x01"
        end = bytes(8) if coding == "gzip" else b"\0\0\0\1"
        return lambda size: front + blank * (size // len(blank)) + _LAST_BLOCK + end
    pack = gzip.compress if coding == "gzip" else zlib.compress
    if kind == 2:
        return lambda size: pack(random.Random(0).randbytes(size), 1)
    if kind == 3:
        return lambda size: pack(bytes(16 * size), 9)
    members = chance.choice([10, 900, 2000])
    return lambda size: gzip.compress(b"") * members + pack(random.Random(0).randbytes(size), 1)


# What is sent over HTTP/2

Fields = tuple[tuple[bytes, bytes], ...]
_FIELDS: Final[Fields] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", V1),
    (b":authority", b"x"),
)
_POST: Final = headers(1, 0, block(fields=_FIELDS))


def _framed(chance: random.Random, first: bytes, body_of: Filled) -> Filled:
    """Return a function that makes a stream with such a body."""
    each = chance.choice([1, 33, 33, 100, 1 << 14])
    padded = each <= 1 << 8 and chance.random() < 0.4

    def filled(size: int) -> bytes:
        body, frames = body_of(size), []
        for at in range(0, len(body), each):
            piece = body[at : at + each]
            if padded:
                frames.append(frame(DATA, PADDED, 1, b"\x03" + piece + bytes(3)))
            else:
                frames.append(data_frame(1, piece))
        return b"".join([GREETING, first, *frames, data_frame(1, b"", END_STREAM)])

    return filled


def _http2_data(chance: random.Random) -> Filled:
    return _framed(chance, _POST, lambda size: b"1," * (size // 2))


def _http2_coded(chance: random.Random, coding: str) -> Filled:
    packed = _packed(chance, coding)
    first = headers(1, 0, block((b"content-encoding", coding.encode()), fields=_FIELDS))
    return _framed(chance, first, packed)


def _http2_requests(chance: random.Random) -> Filled:
    return _many(chance, _FIELDS, b"1" * chance.choice([0, 10, 100]))


def _many(chance: random.Random, fields: Fields, body: bytes) -> Filled:
    """Streams one after the other, by literals or by what the first has put into the table."""
    first = later = block(fields=fields)
    if chance.random() < 0.5:
        first = b"".join(b"\x40" + field(*pair)[1:] for pair in fields)
        later = bytes(range(0xBE, 0xBE + len(fields)))[::-1]
    one = len(headers(1, 0, later)) + len(data_frame(1, body))

    def filled(size: int) -> bytes:
        numbers = range(3, 2 * (size // one), 2)
        calls = (headers(n, 0, later) + data_frame(n, body, END_STREAM) for n in numbers)
        return b"".join([GREETING, headers(1, 0, first), data_frame(1, body, END_STREAM), *calls])

    return filled


def _http2_control(chance: random.Random) -> Filled:
    piece = chance.choice(
        [
            frame(PING, 0, 0, bytes(8)),
            frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff"),
            frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
            frame(0x0F, 0, 0),
        ]
    )
    end = data_frame(1, b"1", END_STREAM)
    return lambda size: b"".join((GREETING, _POST, piece * (size // len(piece)), end))


# What is sent over gRPC

_LIVE: Final = INFER.replace("ModelInfer", "ServerLive")


def _call(path: str, *more: tuple[bytes, bytes]) -> bytes:
    return headers(1, 0, block(*more, fields=_call_fields(path)))


def _call_fields(path: str) -> Fields:
    return (
        *_FIELDS[:2],
        (b":path", path.encode()),
        _FIELDS[3],
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )


def _grpc_calls(chance: random.Random) -> Filled:
    path = chance.choice([INFER, INFER, STREAM, _LIVE])
    body = chance.choice([_message(b""), _message(b"answered"), 2 * _message(b"")])
    return _many(chance, _call_fields(path), body)


def _message(data: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(data).to_bytes(4, "big") + data


def _grpc_data(chance: random.Random) -> Filled:
    return _framed(chance, _call(INFER), lambda size: _message(b"\x0a\x00" * (size // 2)))


def _grpc_messages(chance: random.Random) -> Filled:
    piece = chance.choice([_message(b""), _message(b"\x0a\x01m"), _message(b"\xff")])
    return _framed(chance, _call(STREAM), lambda size: piece * (size // len(piece)))


def _grpc_coded(chance: random.Random, coding: str) -> Filled:
    packed, path = _packed(chance, coding), chance.choice([INFER, STREAM])
    first = _call(path, (b"grpc-encoding", coding.encode()))
    return _framed(chance, first, lambda size: _message(packed(size), compressed=True))


def _grpc_control(chance: random.Random) -> Filled:
    name = chance.choice(["RepositoryModelUnload", "LogSettings", "ModelMetadata", "ServerLive"])
    piece = chance.choice([b"\x0a\x00", b"\x1a\x00", b"\x7a\x00"])
    first = _call(_LIVE.replace("ServerLive", name))
    return _framed(chance, first, lambda size: _message(piece * (size // len(piece))))


Make = Callable[[random.Random], Filled]
CONNECTIONS: Final[dict[str, tuple[Callable[[Turns], Side], Make]]] = {
    "http/1.1 length": (http_side, _of_length),
    "http/1.1 pipelined": (http_side, _pipelined),
    "http/1.1 chunks": (http_side, _in_chunks),
    "http/1.1 upgrade": (http_side, _upgrading),
    "http/1.1 gzip": (http_side, partial(_coded, coding="gzip")),
    "http/1.1 deflate": (http_side, partial(_coded, coding="deflate")),
    "http/2 data": (http_side, _http2_data),
    "http/2 gzip": (http_side, partial(_http2_coded, coding="gzip")),
    "http/2 requests": (http_side, _http2_requests),
    "http/2 control": (http_side, _http2_control),
    "grpc calls": (grpc_side, _grpc_calls),
    "grpc data": (grpc_side, _grpc_data),
    "grpc messages": (grpc_side, _grpc_messages),
    "grpc gzip": (grpc_side, partial(_grpc_coded, coding="gzip")),
    "grpc deflate": (grpc_side, partial(_grpc_coded, coding="deflate")),
    "grpc control": (grpc_side, _grpc_control),
}
"""Connection of each name, and the function that makes its client's bytes from a seed."""


class Talk:
    """A connection of that kind, as the seed chooses."""

    def __init__(self, kind: str, seed: int) -> None:
        chance = random.Random(seed)
        self._side, make = CONNECTIONS[kind]
        self._filled = make(chance)
        self._read_bytes = chance.choice(_READS)
        self._singly = chance.choice([0, _ONE_BY_ONE])
        self._patient = chance.random() < 0.5

    def of_size(self, size: int) -> Callable[[Turns], int]:
        """Return a client's run with about so many bytes, which returns the number of answers."""
        data = self._filled(size)

        def talk(turns: Turns) -> int:
            side = self._side(turns)
            singly = min(self._singly, len(data))
            converse(turns, side, data, self._read_bytes, singly=singly, patient=self._patient)
            turns.call(side.leave)
            return side.transport.answers

        return talk
