"""Frames of HTTP/2 against the gRPC port of a real server, beside a client that means well.

Whatever stands in the frames, and whoever stops in the middle of one: the process that serves gRPC
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
from typing import Final, Self

from fuzz.limits import Endless, Overrun
from serve.grpc_stub import Stub, grpc_port, infer_request
from serve.server import Server, configured

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITIZED, ACK = 0x1, 0x4, 0x8, 0x20, 0x1
MEMORY_BYTES: Final = 256 << 20
"""What the process may take at most beyond what it took at first."""
WITNESS_EVERY: Final = 25
"""Connections, after which the other client asks."""
_ANSWERED_IN_S: Final = 20.0
_LISTEN_S: Final = 0.02
_MOST: Final = (1 << 32) - 1
_PATHS: Final = (
    b"/inference.GRPCInferenceService/ModelInfer",
    b"/inference.GRPCInferenceService/ModelStreamInfer",
    b"/inference.GRPCInferenceService/ServerLive",
    b"/grpc.health.v1.Health/Watch",
    b"/none",
)
_ECHO: Final = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "INT64", [])]
def predict(x):
    return x
"""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame (RFC 9113, section 4.1)."""
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


def head(path: bytes) -> bytes:
    """The headers of a call."""
    lines = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return b"".join(literal(name, value) for name, value in lines)


def message(data: bytes) -> bytes:
    """One of gRPC's, as it stands in DATA."""
    return b"\0" + struct.pack(">I", len(data)) + data


def connection(seed: int) -> list[bytes]:
    """Everything that one client sends, piece by piece."""
    chance = random.Random(seed)
    if seed % 8 == 0:
        return [PREFACE + frame(SETTINGS, 0, 0, b""), *_flood(chance)]
    pieces = [PREFACE, frame(SETTINGS, 0, 0, _settings(chance))]
    pieces += [_frame(chance) for _ in range(chance.randrange(1, 40))]
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


def _frame(chance: random.Random) -> bytes:
    stream = chance.choice([0, 1, 1, 3, 5, 7, 2, (1 << 31) - 1])
    kind = chance.randrange(11)
    flags = chance.choice([0, END_STREAM, END_HEADERS, END_STREAM | END_HEADERS, PADDED, 0xFF])
    if kind == HEADERS:
        block = head(chance.choice(_PATHS))
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
        body = message(infer_request("echo"))
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


def _flood(chance: random.Random) -> list[bytes]:
    """Much of what costs little to send."""
    call = frame(HEADERS, END_HEADERS, 1, head(_PATHS[1]))
    streams = range(1, 4001, 2)
    floods = (
        lambda: (
            [frame(HEADERS, 0, 1, head(_PATHS[0]))]
            + [frame(CONTINUATION, 0, 1, literal(b"a", b"b") * 2000)] * 100
        ),
        lambda: [frame(SETTINGS, 0, 0, _settings(chance)) * 200] * 50,
        lambda: [frame(PING, 0, 0, bytes(8)) * 1000] * 50,
        lambda: [
            frame(HEADERS, END_HEADERS, stream, head(_PATHS[0]))
            + frame(RESET, 0, stream, struct.pack(">I", 8))
            for stream in streams
        ],
        lambda: [frame(HEADERS, END_HEADERS, stream, head(_PATHS[1])) for stream in streams],
        lambda: [call] + [frame(WINDOW, 0, 1, struct.pack(">I", 1)) * 1000] * 20,
        lambda: [call, frame(RESET, 0, 1, bytes(4))] + [frame(DATA, 0, 1, bytes(1 << 14))] * 200,
        lambda: [call] + [frame(DATA, 0, 1, b"")] * 20_000,
        lambda: [call] + [frame(DATA, 0, 1, message(bytes(1 << 16))[: 1 << 14])] * 200,
        lambda: [call, frame(PRIORITY, 0, 1, bytes(5)) * 20_000],
        lambda: [frame(DATA, 0, 1, bytes(1 << 14))[:-1]],
    )
    return chance.choice(floods)()


class Target:
    """A real server, and both of its clients.

    Args:
        folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        (folder / "echo.py").write_text(_ECHO)
        models = {"echo": {"path": "echo.py"}}
        self._server = Server(folder, *configured(folder, models, grpc_port=0)).wait_ready()
        self._port = grpc_port(self._server)
        self._stub = Stub(self._port)
        self._hanging: list[socket.socket] = []
        self._attempts = 0
        self._asked = 0
        self._ask()
        self._pid = self._server.role("grpc frontend 0")
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
        self._stub.channel.close()
        self._server.destroy()

    def attempt(self, seed: int) -> None:
        """The connection of that seed, and now and then a look at the process.

        Raises:
            AssertionError: the process is another one.
            Overrun: it takes too much memory.
            Endless: the other client is not answered.
        """
        self.send(connection(seed))
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
        """See to it that all is well; raises as `attempt`."""
        self._ask()
        assert self._server.role("grpc frontend 0") == self._pid, "the process was replaced"
        grown = _resident_bytes(self._pid) - self._first_bytes
        self._let_go()
        if grown > MEMORY_BYTES:
            raise Overrun(f"it takes {grown >> 20} MiB more than at first")

    def _ask(self) -> None:
        self._asked += 1
        tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
        raw = struct.pack("<q", self._asked)
        request = infer_request("echo", tensor, raw_input_contents=[raw])
        began = time.monotonic()
        end = self._stub.start(request, timeout_s=_ANSWERED_IN_S)()
        if end.code == "DEADLINE_EXCEEDED":
            raise Endless(f"no answer for {time.monotonic() - began:.0f} s")
        assert end.code == "OK", f"the other client gets {end.code}: {end.text}"
        assert end.response.raw_output_contents[0] == raw, "the answer is another's"

    def _let_go(self) -> None:
        for client in self._hanging:
            client.close()
        self._hanging.clear()


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) << 10
