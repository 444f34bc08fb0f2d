"""Frames of HTTP/2 against a real server, gRPC's port or REST's, beside a client that means well.

Whatever stands in the frames, and whoever stops in the middle of one: the process that serves it
stays the same one and within a budget of memory, and the other client is answered meanwhile.
"""

import random
import re
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from fuzz.limits import Endless, Overrun
from serve.client import Connection, fast, instances
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.server import Server, configured

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITIZED, ACK = 0x1, 0x4, 0x8, 0x20, 0x1
MEMORY_BYTES: Final = 256 << 20
"""Most memory that the process may take beyond that of its start."""
WITNESS_EVERY: Final = 25
"""Connections, after which the other client asks."""
_ANSWERED_IN_S: Final = 20.0
_LISTEN_S: Final = 0.02
_MOST: Final = (1 << 32) - 1
_ECHO: Final = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "INT64", [])]
def predict(x):
    return x
"""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that enters no table (RFC 7541, section 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    """A string as it is, without Huffman's code."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, size = len(text) - 127, b"\x7f"
    while rest >= 128:
        size, rest = size + bytes([rest & 127 | 128]), rest >> 7
    return size + bytes([rest]) + text


def head(path: bytes, content_type: bytes = b"application/grpc") -> bytes:
    """The headers of a request."""
    lines = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"x"),
        (b"content-type", content_type),
        (b"te", b"trailers"),
    )
    return b"".join(literal(name, value) for name, value in lines)


def message(data: bytes) -> bytes:
    """Return a gRPC message as it stands in DATA."""
    return b"\0" + struct.pack(">I", len(data)) + data


class Asked(NamedTuple):
    """Request of a well-behaved client over HTTP/2.

    Attributes:
        paths: the first is that of a short answer.
        content_type: of a body.
        body: a whole one.
    """

    paths: tuple[bytes, ...]
    content_type: bytes
    body: bytes

    def head(self, path: bytes) -> bytes:
        """The headers of a request."""
        return head(path, self.content_type)


GRPC: Final = Asked(
    (
        b"/inference.GRPCInferenceService/ModelInfer",
        b"/inference.GRPCInferenceService/ModelStreamInfer",
        b"/inference.GRPCInferenceService/ServerLive",
        b"/grpc.health.v1.Health/Watch",
        b"/none",
    ),
    b"application/grpc",
    message(infer_request("echo")),
)
REST: Final = Asked(
    (
        b"/v1/models/echo:predict",
        b"/v2/models/echo/infer",
        b"/v2/health/ready",
        b"/docs",
        b"/none",
    ),
    b"application/json",
    b'{"instances":[1]}',
)


def connection(seed: int, asked: Asked) -> list[bytes]:
    """Return all bytes of a client, piece by piece."""
    chance = random.Random(seed)
    if seed % 8 == 0:
        return [PREFACE + frame(SETTINGS, 0, 0, b""), *_flood(chance, asked)]
    # Half of them begin well, or few would come to be served.
    wrong = chance.random() < 0.5
    pieces = [PREFACE, frame(SETTINGS, 0, 0, _settings(chance) if wrong else b"")]
    if not wrong:
        pieces.append(frame(HEADERS, END_HEADERS, 1, asked.head(chance.choice(asked.paths))))
    pieces += [_frame(chance, asked) for _ in range(chance.randrange(1, 40))]
    data = b"".join(pieces)
    if chance.random() < 0.3:
        at = chance.randrange(len(data))
        data = data[:at] + chance.randbytes(chance.choice([1, 2, 9])) + data[at + 1 :]
    if chance.random() < 0.3:
        data = data[: chance.randrange(len(data))]
    return [data]


def _settings(chance: random.Random) -> bytes:
    values = [0, 1, 1 << 14, (1 << 24) - 1, (1 << 31) - 1, _MOST, chance.getrandbits(32)]
    pairs = [(chance.randrange(0, 9), chance.choice(values)) for _ in range(chance.randrange(5))]
    return b"".join(struct.pack(">HI", number, value) for number, value in pairs)


def _frame(chance: random.Random, asked: Asked) -> bytes:
    stream = chance.choice([0, 1, 1, 3, 5, 7, 2, (1 << 31) - 1])
    kind = chance.randrange(11)
    flags = chance.choice([0, END_STREAM, END_HEADERS, END_STREAM | END_HEADERS, PADDED, 0xFF])
    if kind == HEADERS:
        block = asked.head(chance.choice(asked.paths))
        drawn = chance.random()
        if drawn < 0.2:
            block = block[: chance.randrange(len(block))]
        elif drawn < 0.4:
            block += chance.randbytes(chance.randrange(1, 40))
        elif drawn < 0.5:
            # Indices of tables, and other sizes for them.
            block += bytes(chance.choice([0x80, 0xBE, 0xFF, 0x3F, 0x20]) for _ in range(9))
        return frame(HEADERS, chance.choice([flags, END_HEADERS, END_HEADERS]), stream, block)
    if kind == DATA:
        body = asked.body
        body = body[: chance.randrange(len(body) + 1)] if chance.random() < 0.5 else body
        return frame(DATA, flags, stream, body + bytes(chance.choice([0, 0, 1, 1 << 14])))
    if kind == SETTINGS:
        return frame(SETTINGS, chance.choice([0, 0, ACK]), 0, _settings(chance))
    if kind in (RESET, WINDOW):
        value = chance.choice([0, 1, 1 << 16, (1 << 31) - 1, _MOST])
        return frame(kind, 0, stream, struct.pack(">I", value))
    if kind == PING:
        return frame(PING, chance.choice([0, ACK]), 0, bytes(chance.choice([8, 8, 7])))
    if kind == GOAWAY:
        return frame(GOAWAY, 0, 0, struct.pack(">II", stream, chance.getrandbits(4)))
    return frame(kind, flags, stream, chance.randbytes(chance.choice([0, 4, 5, 40])))


def _flood(chance: random.Random, asked: Asked) -> list[bytes]:
    """Return a flood of frames that cost little to send."""
    first, second = (asked.head(path) for path in asked.paths[:2])
    # Which is refused by its head alone.
    last = asked.head(asked.paths[-1])
    call = frame(HEADERS, END_HEADERS, 1, second)
    streams = range(1, 4001, 2)
    ended = END_HEADERS | END_STREAM
    floods = (
        lambda: (
            [frame(HEADERS, 0, 1, first)]
            + [frame(CONTINUATION, 0, 1, literal(b"a", b"b") * 2000)] * 100
        ),
        lambda: [frame(SETTINGS, 0, 0, _settings(chance)) * 200] * 50,
        lambda: [frame(PING, 0, 0, bytes(8)) * 1000] * 50,
        lambda: [
            frame(HEADERS, END_HEADERS, stream, first)
            + frame(RESET, 0, stream, struct.pack(">I", 8))
            for stream in streams
        ],
        lambda: [frame(HEADERS, END_HEADERS, stream, second) for stream in streams],
        lambda: [
            frame(HEADERS, END_HEADERS, stream, asked.head(asked.paths[3]))
            + frame(DATA, END_STREAM, stream, message(b""))
            for stream in streams[:1024]
        ],
        lambda: [call] + [frame(WINDOW, 0, 1, struct.pack(">I", 1)) * 1000] * 20,
        lambda: [call, frame(RESET, 0, 1, bytes(4))] + [frame(DATA, 0, 1, bytes(1 << 14))] * 200,
        lambda: [call] + [frame(DATA, 0, 1, b"")] * 20_000,
        lambda: [call] + [frame(DATA, 0, 1, message(bytes(1 << 16))[: 1 << 14])] * 200,
        lambda: [call, frame(PRIORITY, 0, 1, bytes(5)) * 20_000],
        lambda: [frame(DATA, 0, 1, bytes(1 << 14))[:-1]],
        lambda: [
            b"".join(frame(HEADERS, END_HEADERS, stream, last) for stream in streams[:100]),
            *[b"".join(frame(DATA, 0, stream, bytes(1 << 12)) for stream in streams[:100])] * 40,
        ],
        lambda: [
            _window(0),
            *(frame(HEADERS, ended, stream, first) for stream in streams[:128]),
            *[(_window(1) + _window(0)) * 500] * 5,
        ],
    )
    return chance.choice(floods)()


def _window(size: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", 4, size))


class Target:
    """A real server, and both of its clients.

    Args:
        folder: for its files.
        asked: of it.
        role: of the process that serves that.
        keys: of its configuration.
    """

    def __init__(self, folder: Path, asked: Asked, role: str, **keys: Any) -> None:
        (folder / "echo.py").write_text(_ECHO)
        models = {"echo": {"path": "echo.py"}}
        words = configured(folder, models, frontends=1, **keys)
        self._server = Server(folder, *words).wait_ready()
        self._port = self._find_port()
        self._role = role
        self._asked = asked
        self._hanging: list[socket.socket] = []
        self._attempts = 0
        self._value = 0
        self._ask()
        self._pid = self._server.role(role)
        self._first_bytes = _resident_bytes(self._pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._let_go()
        self._server.destroy()

    def attempt(self, seed: int) -> None:
        """Play the connection of that seed, and check the process now and then.

        Raises:
            AssertionError: the process is another one.
            Overrun: it takes too much memory.
            Endless: the other client is not answered.
        """
        self.send(connection(seed, self._asked))
        self._attempts += 1
        if self._attempts % WITNESS_EVERY == 0:
            self.check()

    def send(self, pieces: Sequence[bytes]) -> None:
        """Send bytes on a connection of their own, and leave it open."""
        with suppress(OSError):
            client = socket.create_connection(("127.0.0.1", self._port), timeout=_LISTEN_S)
            self._hanging.append(client)
            for piece in pieces:
                client.sendall(piece)
            client.recv(1 << 16)

    def check(self) -> None:
        """Check the server after the connections; raises as `attempt` does."""
        self._ask()
        assert self._server.role(self._role) == self._pid, "the process was replaced"
        grown = _resident_bytes(self._pid) - self._first_bytes
        self._let_go()
        if grown > MEMORY_BYTES:
            raise Overrun(f"it takes {grown >> 20} MiB more than at first")

    def _ask(self) -> None:
        self._value += 1
        began = time.monotonic()
        self._expect_answer(self._value)
        if (taken_s := time.monotonic() - began) > _ANSWERED_IN_S:
            raise Endless(f"no answer for {taken_s:.0f} s")

    def _find_port(self) -> int:
        raise NotImplementedError

    def _expect_answer(self, value: int) -> None:
        """Check that the other client still gets its answers."""
        raise NotImplementedError

    def _let_go(self) -> None:
        for client in self._hanging:
            client.close()
        self._hanging.clear()


class GrpcTarget(Target):
    """gRPC port of a server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GRPC, "grpc frontend 0", grpc_port=0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stub.channel.close()
        super().__exit__(kind, error, trace)

    def _find_port(self) -> int:
        port = grpc_port(self._server)
        self._stub = Stub(port)
        return port

    def _expect_answer(self, value: int) -> None:
        tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
        raw = struct.pack("<q", value)
        request = infer_request("echo", tensor, raw_input_contents=[raw])
        end = self._stub.start(request, timeout_s=2 * _ANSWERED_IN_S)()
        assert end.code == "OK", f"the other client gets {end.code}: {end.text}"
        assert end.response.raw_output_contents[0] == raw, "the answer is another's"


class RestTarget(Target):
    """HTTP port of a server with HTTP/2; the other client has stayed with HTTP/1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, REST, "frontend 0", http2=True)

    def _find_port(self) -> int:
        return self._server.port

    def _expect_answer(self, value: int) -> None:
        with Connection(self._server.port) as client:
            answer = client.ask(fast("echo", instances(value)))
        assert answer.status == 200, f"the other client gets {answer.status}: {answer.body!r}"
        assert answer.json["predictions"] == [value], "the answer is another's"


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) << 10
