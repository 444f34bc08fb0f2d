"""A model server that answers anything, and the worker that asked it.

Answers are made from sound ones by accident: status line, headers, lengths, chunks, codings, JSON
and binary tensors, over V1 and V2. Each comes in pieces over a connection that then ends, breaks or
stays open. The worker goes on, takes no more than it may, and answers every request with a status
of the one table and words that name the failure. Its next batch gets the answer of a good server.
"""

import gzip
import json
import random
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from fuzz.limits import Endless, Overrun
from fuzz.mutate import Mutator, cuts
from segment_fixture import Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.upstreams.choice import LONGEST_HOLD_S
from ringbatch.engine.runtimes.upstreams.connection import Address
from ringbatch.engine.runtimes.upstreams.names import Names
from ringbatch.engine.runtimes.upstreams.pool import Manner, Pool
from ringbatch.engine.runtimes.upstreams.runtime import V1Server, V2Server
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.frontend.codec.outcome import error_of, outcome
from ringbatch.frontend.v1.forwarded import ForwardedRequests
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.layout import PAGE
from ringbatch.shm.model_spec import Forward
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.upstreams import OwnUpstreams

REQUESTS: Final = 3
"""Requests in a batch, of one row each."""
_PATIENCE_NS: Final = 4_000_000
"""Timeout for a server that stays silent with its connection open."""
_LONG_NS: Final = 60_000_000_000
PROTOCOLS: Final = ("v1", "v2")
LANE_BYTES: Final = 4 * PAGE
BOUND_BYTES: Final = 4 * LANE_BYTES
"""Most bytes of an answer."""
_AT_A_TIME: Final = 1 << 16
_FORWARD: Final = Forward("/p", (), any_path=False)
_REQUESTS: Final = ForwardedRequests(replace(spec(0), forward=_FORWARD), _FORWARD)
_INPUT: Final = Tensor("x", "INT64", [])
_OUTPUTS: Final = (
    Tensor("f", "FP32", [2]),
    Tensor("u", "UINT8", []),
    Tensor("s", "BYTES", [1]),
    Tensor("h", "BF16", [1]),
)
_OPTIONS: Final = Options(max_batch_size=REQUESTS, threads=1, name="m")
_FAILURES: Final = frozenset(
    (
        Status.EXPIRED,
        Status.SERVER_ANSWERED,
        Status.SERVER_BROKEN,
        Status.SERVER_MISCOUNTED,
        Status.SERVER_DOWN,
        # What the runner finds wrong with tensors.
        Status.MODEL_FAILED,
        Status.WRONG_COUNT,
    )
)

# Answers

_REFUSED: Final = (b"429 Many", b"503 Busy")
_STATUSES: Final = (
    *(b"200 OK",) * 40,
    *_REFUSED * 4,
    *(b"204 None", b"304 Same", b"400 Bad", b"422 No", b"500 Oops", b"502 Bad", b"504 Late"),
    *(b"000", b"100 Go on", b"101 Other", b"103 Early", b"199", b"299 ", b"599", b"600", b"999"),
    *(b"99999999999999999999", b"-1", b""),
)
_DATES: Final = (
    b"Fri, 27 Nov 2026 12:00:00 GMT",
    b"Friday, 27-Nov-26 12:00:00 GMT",
    b"Fri Nov 27 12:00:00 2026",
    b"Fri, 31 Dec 9999 23:59:59 -2359",
    b"Mon, 01 Jan 0001 00:00:00 +2359",
    b"Fri, 27 Nov 2026 99:99:99 +9999",
    b"Fri, 27 Nov 2026 12:00:00 -" + b"9" * 17,
    b"Fri, 27 Nov 2026 " + b"9" * 20 + b":00:00 GMT",
    # Short enough to be read.
    b"27 Nov 2026 12:00:00 -" + b"9" * 13,
    b"27 Nov 2026 " + b"9" * 11 + b":00:00 GMT",
    b"120",
    b"-1",
    b"1.5",
    b"99999999999999999999",
)
_DATE_TOKENS: Final = (
    *(b"-2359", b"+2359", b"+9999", b"-99999999999", b"EST", b"-0000", b"Z", b","),
    *(b"9999", b"0001", b"0000", b"99999999999999999999", b"Dec", b"31", b"25:61:61"),
    *(b" ", b"\t", b":", b"-", b"\x7f", b"\xff", b"\xb2", b"1" * 5000),
)
_HTTP_TOKENS: Final = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"\x7f", b"0\r\n\r\n"),
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/2.0 200 OK\r\n",
        b"HTTP/1.1 100 \r\n\r\n",
    ),
    *(b"Content-Length: 5\r\n", b"content-length: 18446744073709551616\r\n"),
    *(b"content-length: 18446744073709551615\r\n", b"content-length: " + b"0" * 5000 + b"7\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Connection: close\r\n",
    ),
    *(b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"FFFFFFFFFFFFFFFF\r\n", b"-1\r\n", b"ffff\r\n"),
    *(b"1;a=b\r\n", b"x: " + b"y" * 4000 + b"\r\n", b"Content-Encoding: gzip\r\n"),
)
_JSON_TOKENS: Final = (
    *(b'{}[],:"'[i : i + 1] for i in range(7)),
    *(
        b"null",
        b"true",
        b"-1",
        b"0",
        b"1e999",
        b"NaN",
        b"-0.0",
        b"1" * 5000,
        b"18446744073709551616",
    ),
    *(b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"[" * 1100, b"]" * 1100, b" " * 4000),
    *(b'"predictions"', b'"outputs"', b'"shape"', b'"data"', b'"datatype"', b'"parameters"'),
    *(b'"binary_data_size"', b"[-1]", b"9223372036854775807", b"[" + b"65536," * 600 + b"1]"),
    *(b"\0", b"\xff" * 4, b"\0\0\0\x80", b'"\xc3\xa9"', b'"1e400"', b"300", b"{}"),
)
_V1_BODIES: Final = (
    b'{"predictions":[[1],[2],[3]]}',
    b'{"predictions": [1.5, {"a": "]"}, null]}',
    b'{"outputs":["a","b\\u0022","c"],"predictions":"no"}',
    b'{"model":"m","predictions":[1,2,3],"id":"7"}',
    b'{"predictions":[1]}',
    b'{"predictions":[[1],[2]],"predictions":[[1],[2],[3]]}',
    b'{"error":"no such thing"}',
)


def _v2_bodies() -> tuple[tuple[int | None, bytes], ...]:
    """Length of the JSON text, and the body."""
    rows = REQUESTS
    listed = [
        {"name": "f", "datatype": "FP32", "shape": [rows, 2], "data": [0.5] * 2 * rows},
        {"name": "u", "datatype": "UINT8", "shape": [rows], "data": [7] * rows},
        {"name": "s", "datatype": "BYTES", "shape": [rows, 1], "data": ["ab"] * rows},
    ]
    packed = (
        struct.pack(f"<{2 * rows}f", *[0.5] * 2 * rows),
        b"\7" * rows,
        b"\2\0\0\0ab" * rows,
        b"\x80\x3f" * rows,
    )
    entries = [
        {k: v for k, v in entry.items() if k != "data"}
        | {"parameters": {"binary_data_size": len(d)}}
        for entry, d in zip(
            [*listed, {"name": "h", "datatype": "BF16", "shape": [rows, 1]}], packed, strict=True
        )
    ]
    binary = json.dumps({"outputs": entries}).encode()
    mixed = json.dumps({"model_name": "m", "outputs": [*listed, entries[3]]}).encode()
    nested = [{**listed[0], "data": [[0.5, 0.5]] * rows}, *listed[1:]]
    return (
        (len(binary), binary + b"".join(packed)),
        (len(mixed), mixed + packed[3]),
        (None, json.dumps({"outputs": nested}).encode()),
        (None, b'{"error":"no such thing"}'),
    )


_V2_BODIES: Final = _v2_bodies()
_V1_MADE: Final = Mutator(_V1_BODIES, _JSON_TOKENS)
_V2_MADE: Final = [(n, Mutator([body], _JSON_TOKENS)) for n, body in _V2_BODIES]
_DATES_MADE: Final = Mutator(_DATES, _DATE_TOKENS)
_LENGTH: Final = b"Inference-Header-Content-Length: "


def good_answer(protocol: str) -> bytes:
    """Return a server's valid answer."""
    if protocol == "v1":
        return _framed(b"200 OK", [], _V1_BODIES[0])
    length, body = _V2_BODIES[0]
    return _framed(b"200 OK", [_LENGTH + b"%d" % (length or 0)], body)


def hostile_answer(protocol: str, seed: int) -> bytes:
    """The answer of that seed, always the same."""
    chance = random.Random(seed)
    sound = chance.random() < 0.4
    lines = []
    if protocol == "v1":
        body = _V1_BODIES[seed % 2] if sound else _V1_MADE.make(seed)
    else:
        length, made = chance.choice(_V2_MADE)
        body = made.make(0 if sound else seed)
        if length is not None:
            length_line = chance.choice(
                [b"%d" % length] * 6 + [b"-1", b"x", b"\xb2", b"9" * 30, b"1" * 5000]
            )
            lines.append(_LENGTH + length_line)
    if chance.random() < 0.1:
        body += b" " * chance.choice([1 << 10, 1 << 14, 1 << 16, 1 << 18])
    status = chance.choice(_STATUSES)
    if status in _REFUSED or chance.random() < 0.2:
        date = chance.choice([chance.choice(_DATES), _DATES_MADE.make(seed)])
        lines.append(b"Retry-After: " + date)
    if chance.random() < 0.05:
        lines.append(b"Content-Encoding: gzip")
        body = gzip.compress(body)
    whole = _framed(status, lines, body, chance.randrange(6))
    if chance.random() < 0.3:
        whole = Mutator([whole], _HTTP_TOKENS).make(1 + seed)
    if chance.random() < 0.1:
        whole = b"HTTP/1.1 100 Continue\r\n\r\n" * chance.choice([1, 3, 4000]) + whole
    return whole


def _framed(status: bytes, lines: Sequence[bytes], body: bytes, how: int = 0) -> bytes:
    head = b"HTTP/1.1 %b\r\n%b" % (status, b"".join(b"%b\r\n" % line for line in lines))
    if how == 1:
        pieces = cuts(body, len(body))
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
        return b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (head, chunks)
    if how == 2:
        return b"%b\r\n%b" % (head, body)
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


# Its connections


class Wire(socket.socket):
    """A connection to the server: whatever is sent over it is answered, in pieces."""

    def __init__(self, server: "Server") -> None:
        near, self._far = socket.socketpair()
        super().__init__(fileno=near.detach())
        self._server = server
        self._left = b""
        self._pieces: list[int] = []

    def setsockopt(self, *_options: Any) -> None:
        """Ignore options of TCP, which this socket lacks."""

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Take the bytes as one whole request, and answer it."""
        server = self._server
        server.asked += 1
        self._left = server.answer
        self._pieces = [len(piece) for piece in cuts(server.answer, server.asked)]
        self._put()
        return len(data)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else bufsize
        found = super().recv(min(bufsize, max(piece, 1)), flags)
        self._server.taken += len(found)
        self._put()
        return found

    def close(self) -> None:
        self._far.close()
        super().close()

    def _put(self) -> None:
        """Answer as much as the kernel has room for, and then end."""
        if self._far.fileno() < 0:
            return
        self._far.setblocking(False)
        with suppress(BlockingIOError):
            while self._left:
                self._left = self._left[self._far.send(self._left) :]
        if self._left:
            return
        if self._server.ending == "ends":
            self._far.shutdown(socket.SHUT_WR)
        elif self._server.ending == "breaks":
            self._far.close()


class Server:
    """Model server whose connections give one answer in an attempt.

    Attributes:
        answer: the same to every request.
        ending: of a connection behind an answer: ``ends``, ``breaks`` or ``stays``.
        asked: requests that came.
        taken: bytes of answers that were taken.
    """

    def __init__(self) -> None:
        self.answer = b""
        self.ending = "stays"
        self.asked = self.taken = 0
        self._wires: list[Wire] = []

    def connect(self, *_address: object) -> Wire:
        """Take a connection."""
        self._wires.append(wire := Wire(self))
        return wire

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.close()


class _Pool(Pool):
    def _keep(self) -> bool:
        """Watch over the servers in no thread."""
        return False


class Worker:
    """Worker that sends the batches of a model to model servers.

    Args:
        protocol: ``v1`` or ``v2``.
        servers: number of servers.
        always: as `Manner.always`.
    """

    def __init__(self, protocol: str, servers: int, *, always: bool) -> None:
        typed = spec(0, [_INPUT], _OUTPUTS)
        segment = local_segment(
            typed if protocol == "v2" else replace(spec(0), forward=_FORWARD), lane_bytes=LANE_BYTES
        )
        self.ahead_ns = 0
        self._protocol = protocol
        self._client = Client(segment)
        self._taken = Consumer(segment.words, segment.layout.submission_ring(0), 64)
        self._engine_slots = EngineSlots(segment, 0, lambda _lane: None)
        self._records = OwnUpstreams(segment.words, segment.layout, 0)
        self._names = Names("m", [Address("127.0.0.1", 1 + n, "") for n in range(servers)])
        manner = Manner("m", "/", always)
        pool = _Pool(self._names, manner, lambda: 0.5, lambda: time.monotonic_ns() + self.ahead_ns)
        pool.share(self._records)
        if protocol == "v1":
            v1 = V1Server(pool, _OPTIONS, "/p")
            self._asks: V1Server | V2Server = v1
            self._runner: Runner | Forwarder = Forwarder(
                v1, "m", self._engine_slots, time.monotonic_ns
            )
        else:
            v2 = self._asks = V2Server(pool, _OPTIONS, "/m", (_INPUT,), _OUTPUTS)
            model = Model((_INPUT,), _OUTPUTS, lambda: None, v2.predict)
            self._runner = Runner(RunnerSetup(model, "m", self._engine_slots, time.monotonic_ns))

    def run(self, patience_ns: int) -> list[Reply]:
        """The answers to a batch whose requests wait so long for it."""
        until_ns = time.monotonic_ns() + patience_ns
        self._asks._timeout_ns = patience_ns
        for number in range(REQUESTS):
            if self._protocol == "v1":
                ((rows, payload, key_bytes),), _ = _REQUESTS.parse(b'{"instances":[%d]}' % number)
            else:
                (payload, key_bytes), rows = pack([_INPUT], [[number]]), 1
            self._client.send(bytes(payload), rows, key_bytes=key_bytes, deadline_ns=until_ns)
        mark = BatchMark(1, REQUESTS, Reason.FULL, 0)
        self._runner.run(self._taken.take(), mark, time.monotonic_ns())
        self._engine_slots.flush()
        return list(self._client.collect().values())

    def held_s(self) -> float:
        """Return the longest time for which a server is still left alone."""
        now_ns = time.monotonic_ns() + self.ahead_ns
        states = self._records.own_states([e.tag for e in self._names.endpoints], now_ns)
        return max(state.held_until_ns - now_ns for state in states.values()) / 1e9


def answer_one(seed: int) -> bool:
    """Give a worker the answer of that seed; whether it was taken for one.

    Raises:
        AssertionError: a request has no answer, or one without a name.
        Overrun: more was taken of the answer than may be.
        Exception: the worker gave in.
    """
    chance = random.Random(~seed)
    protocol = chance.choice(PROTOCOLS)
    with closing(Server()) as server:
        return _answered(server, protocol, seed, chance)


def _answered(server: Server, protocol: str, seed: int, chance: random.Random) -> bool:
    server.answer = hostile_answer(protocol, seed)
    server.ending = chance.choice(["ends"] * 8 + ["breaks"] * 3 + ["stays"])
    worker = Worker(protocol, chance.choice([1, 1, 2]), always=chance.random() < 0.3)
    with patch.object(socket, "create_connection", server.connect):
        replies = worker.run(_PATIENCE_NS if server.ending == "stays" else _LONG_NS)
        for reply in replies:
            _check(protocol, reply)
        if server.taken > server.asked * (BOUND_BYTES + _AT_A_TIME):
            raise Overrun(f"{server.taken} bytes were taken of {server.asked} answers")
        if worker.held_s() > LONGEST_HOLD_S:
            raise Endless(f"a server is left alone for {worker.held_s()} s")
        worker.ahead_ns = 2 * int(LONGEST_HOLD_S * 1e9)
        server.answer, server.ending = good_answer(protocol), "stays"
        after = worker.run(_LONG_NS)
    for got in (replies, after):
        assert len(got) == REQUESTS, f"{len(got)} answers to {REQUESTS} requests"
    assert [reply.answer.status for reply in after] == [Status.OK] * REQUESTS, after
    return any(reply.answer.status is Status.OK for reply in replies)


def _check(protocol: str, reply: Reply) -> None:
    status, data = reply.answer.status, reply.data
    if status is Status.OK:
        if protocol == "v1":
            assert len(json.loads(data)) == 1, "another's predictions"
        else:
            unpack(_OUTPUTS, 1, data)
        return
    if status is Status.RESULT_TOO_LARGE:
        # To be sent again with more room; there is no text.
        return
    # It may be cut short in the middle of a character.
    text = data.decode(errors="replace")
    assert status in _FAILURES, f"{status.name}: {text}"
    assert "server's log" not in text, text
    refusal = outcome(error_of(status, text))
    assert 400 <= refusal.status <= 599
    json.loads(refusal.body)
    for name, value in refusal.headers:
        assert f"{name}{value}".isascii(), value
        assert f"{name}{value}".isprintable(), value
        assert len(value) < 100, value
