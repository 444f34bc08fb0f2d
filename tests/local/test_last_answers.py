"""The last answer of a connection arrives, though its client goes on sending and reads only then.

The kernel would reset a connection that is closed before everything was read. Over real sockets.
"""

import asyncio
import gc
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import uvloop
from http_harness import ESCAPED, UNREAD, WAITS, Connection, request
from serve.secure import Authority

from ringbatch.frontend.http import lingering_close
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.head_framing import MAX_HEAD_BYTES
from ringbatch.frontend.http.phases import LIMITS, Phase

MANY: Final = 1 << 24
"""Bytes beyond those that the kernel takes for a client that does not read."""
WATCHDOG_S: Final = 60
V2: Final = b"/v2/models/m/infer"


def large(*lines: bytes, path: bytes = b"/v1/models/m:predict", version: bytes = b"1.1") -> bytes:
    """The head of a request with that body, and the beginning of this."""
    asked = request(b"", *lines, path=path).replace(b"HTTP/1.1", b"HTTP/" + version)
    return asked.replace(b"Content-Length: 0", b"Content-Length: %d" % MANY) + b"{}"


CHUNKED = request(b"", path=ESCAPED).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
CASES: Final[dict[str, tuple[bytes, int]]] = {
    "fast-no-room": (large(), 503),
    "fast-slow-head": (request(b"")[:-2] + b"A: ", 408),
    "fast-slow-body": (large(), 408),
    "fast-slow-body-into-its-slot": (large(b"Inference-Header-Content-Length: 2", path=V2), 408),
    "fast-long-head": (request(b"")[:-2] + b"A: " + b"a" * MAX_HEAD_BYTES, 431),
    "fast-answered-with-more-behind": (request(b"{}", b"Connection: close") + b"more", 200),
    "falcon-no-host": (large(path=ESCAPED).replace(b"Host: x\r\n", b""), 400),
    "falcon-slow-head": (b"GET / HTTP/1.1\r\nA: ", 408),
    "falcon-slow-body": (large(path=ESCAPED), 408),
    "falcon-long-head": (b"GET / HTTP/1.1\r\nA: " + b"a" * 2 * MAX_HEAD_BYTES, 431),
    "falcon-bad-chunk": (CHUNKED + b"x\r\n", 400),
    "falcon-closed-in-the-body": (large(b"Connection: close", path=UNREAD.encode()), 200),
    "falcon-old": (large(path=UNREAD.encode(), version=b"1.0"), 200),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class Client:
    """Client that sends from a thread of its own.

    Attributes:
        may_send: whether it may send more than its first bytes.
        answered: answer received.
    """

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WATCHDOG_S)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self.may_send = threading.Event()
        self.answered = b""

    def will_reset(self) -> None:
        """Close the connection with a reset, as dying clients and many probes do."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def send_all_and_then_read(self, first: bytes, rest: bytes = bytes(MANY)) -> None:
        with self._socket:
            self._socket.sendall(first)
            assert self.may_send.wait(WATCHDOG_S)
            self._socket.sendall(rest)
            while not self._is_answered():
                data = self._socket.recv(1 << 16)
                assert data, f"the end came after {self.answered!r}"
                self.answered += data

    def send_for_ever(self, first: bytes) -> None:
        with self._socket:
            self._socket.sendall(first)
            while True:
                self._socket.sendall(bytes(1 << 16))

    def _is_answered(self) -> bool:
        head, end, body = self.answered.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return bool(end) and len(body) == int(length)


def on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def connection_of(case: str) -> Connection:
    budget = BodyBudget(1 << 16 if case == "fast-no-room" else 1 << 30)
    places = case == "fast-slow-body-into-its-slot"
    return Connection(at_once=True, places=places, budget=budget, max_request_bytes=2 * MANY)


async def wait_until(happened: Callable[[], Any]) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        while not happened():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    process: Connection, listener: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Connections of that process; gives the port."""
    process.transport.close()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(process.another, "127.0.0.1", 0, ssl=listener)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("case", CASES)
def test_an_answer_with_which_the_connection_ends_arrives(
    case: str, tls: bool, authority: Authority
) -> None:
    first, status = CASES[case]

    async def test() -> None:
        process = connection_of(case)
        context, listener = None, None
        if tls:
            listener = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            listener.load_cert_chain(*authority.certify())
            context = authority.client_context()
        async with serving(process, listener) as port:
            client = await asyncio.to_thread(Client, port, context)
            sending = asyncio.create_task(asyncio.to_thread(client.send_all_and_then_read, first))
            if "slow" in case:
                await let_its_time_pass(process, Phase.HEAD if "head" in case else Phase.BODY)
            client.may_send.set()
            await sending
            assert client.answered.startswith(b"HTTP/1.1 %d " % status)
            assert b"connection: close" in client.answered
            await wait_until(lambda: not process.state.connections)

    on_uvloop(test)


def test_the_answer_before_a_stop_arrives_though_more_was_asked_meanwhile() -> None:
    first, another = request(b"{}", path=WAITS.encode()), request(b"{}", path=ESCAPED)

    async def test() -> None:
        process = connection_of("falcon")
        connections: set[Any] = process.state.connections
        async with serving(process) as port:
            client = await asyncio.to_thread(Client, port, None)
            rest = another * (MANY // len(another))
            reading = asyncio.to_thread(client.send_all_and_then_read, first, rest)
            sending = asyncio.create_task(reading)
            await wait_until(lambda: [one for one in connections if one.phase() is Phase.ANSWER])
            (connection,) = connections
            connection.leave()
            client.may_send.set()
            await wait_until(lambda: connection.flow.read_paused)
            process.may_answer.set()
            await sending
            assert b"connection: close" in client.answered

    on_uvloop(test)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_connection_that_has_ended_is_freed_without_the_garbage_collector(reset: bool) -> None:
    async def test() -> None:
        process = connection_of("falcon")
        connections: set[Any] = process.state.connections
        async with serving(process) as port:
            client = await asyncio.to_thread(Client, port, None)
            if reset:
                client.will_reset()
            asked = request(b"{}", path=ESCAPED)
            reading = asyncio.to_thread(client.send_all_and_then_read, asked, b"")
            sending = asyncio.create_task(reading)
            await wait_until(lambda: {type(one) for one in connections} == {FallbackProtocol})
            freed = [weakref.ref(one) for one in connections]
            client.may_send.set()
            await sending
            await wait_until(lambda: not connections)
            # Nor does it wait for any timer.
            await process.settle()
            assert not any(one() for one in freed)

    gc.disable()
    try:
        on_uvloop(test)
    finally:
        gc.enable()


async def let_its_time_pass(process: Connection, phase: Phase) -> None:
    """Wait for a connection in that phase, and let the phase's time pass."""
    connections: set[Any] = process.state.connections
    await wait_until(lambda: phase in {connection.phase() for connection in connections})
    (connection,) = connections
    for _ in range(int(LIMITS[phase].time_s) + 1):
        connection.tick()


@pytest.mark.parametrize("case", ["fast-long-head", "falcon-no-host"])
def test_a_client_that_never_hangs_up_is_not_waited_for(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_S", 0.05)

    async def test() -> None:
        process = connection_of(case)
        async with serving(process) as port:
            client = await asyncio.to_thread(Client, port, None)
            with pytest.raises(ConnectionError):
                await asyncio.to_thread(client.send_for_ever, CASES[case][0])
            assert not process.state.connections

    on_uvloop(test)
