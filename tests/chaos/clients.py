"""Clients over keep-alive connections that know the answers to what they ask."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.keyed import NONCES, Deed, keyed
from chaos.ledger import Ledger

PATH = "/v1/models/keyed:predict"
TICK_S = 0.005
_LOST_AFTER_S = 40.0
"""Beyond its deadline, a request that has met neither answer nor end of connection is lost."""
_EXPIRED = 504


class Ticker:
    """Delays of this process's own event loop, which are not the server's."""

    def __init__(self) -> None:
        self._due = time.monotonic() + TICK_S
        self._delays: list[tuple[float, float]] = []
        self.worst_s = 0.0

    async def run(self) -> None:
        """Measure delays until cancelled."""
        while True:
            self._due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            late_s = time.monotonic() - self._due
            if late_s > TICK_S:
                self._delays.append((self._due, late_s))
                self.worst_s = max(self.worst_s, late_s)

    def delay_s(self, since: float) -> float:
        """The sum of the delays from an instant on, the one under way included."""
        found = max(time.monotonic() - self._due, 0.0)
        for due, late_s in reversed(self._delays):
            if due + late_s < since:
                break
            found += late_s
        return found


@dataclass
class Scene:
    """State that all clients share.

    Attributes:
        port: of the server.
        key: of the model.
        timeout_s: of the model.
        ledger: record of all outcomes.
        source: of nonces and pauses.
        ticker: of this process.
        doomed: local ports of connections whose frontend was killed.
        stopped: by local port, when the frontend of a connection went on after a stop.
        rate_per_s: requests of all clients together; None for as many as there can be.
        clients: number of clients that share the rate.
        going: whether to go on.
    """

    port: int
    key: int
    timeout_s: float
    ledger: Ledger
    source: random.Random
    ticker: Ticker
    doomed: set[int] = field(default_factory=set)
    stopped: dict[int, float] = field(default_factory=dict)
    rate_per_s: float | None = None
    clients: int = 1
    going: bool = True

    def pause_s(self) -> float:
        """Return the average time between the beginnings of a client's requests."""
        if self.rate_per_s is None:
            return 0.0
        return self.source.uniform(0.5, 1.5) * self.clients / self.rate_per_s


class Line(asyncio.Protocol):
    """HTTP connection with at most one request under way."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._buffer = b""
        self._waiting: asyncio.Future[tuple[int, bytes] | None] | None = None
        self.closed = False
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol.connection_made`."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        if self._waiting is None or self._waiting.done():
            self._scene.ledger.fail(f"an answer that nobody asked for: {rest[:length]!r}")
        else:
            self._waiting.set_result((int(head[9:12]), rest[:length]))
        if self._buffer:
            self._scene.ledger.fail(f"bytes beyond the answer: {self._buffer!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol.connection_lost`."""
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def ask(self, body: bytes, limit_s: float) -> tuple[int, bytes] | None:
        """Send a request: its status and body; None where the connection ended instead.

        Raises:
            TimeoutError: neither came within the limit.
        """
        self._waiting = asyncio.get_running_loop().create_future()
        if self.closed:
            return None
        head = f"POST {PATH} HTTP/1.1\r\nHost: chaos\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        async with asyncio.timeout(limit_s):
            return await self._waiting


class Client:
    """HTTP client that sends one request after the other until told to stop.

    Args:
        number: number of this client.
        deed: says for each request what it is to make the model do.
    """

    def __init__(
        self, scene: Scene, number: int, deed: Callable[[], Deed] = lambda: Deed.NONE
    ) -> None:
        self._scene = scene
        self._number = number
        self._deed = deed
        self._count = 0
        self._line: Line | None = None

    async def run(self) -> None:
        """Send requests until the scene is over."""
        while self._scene.going:
            line = await self.connected()
            if line is None:
                continue
            began = time.monotonic()
            await self.ask(line, self._deed())
            left_s = self._scene.pause_s() - (time.monotonic() - began)
            if left_s > 0:
                await asyncio.sleep(left_s)
        if self._line is not None:
            self._line.transport.close()

    async def connected(self) -> Line | None:
        """Return the client's connection, a new one if it has none; None if it cannot connect."""
        if self._line is not None and not self._line.closed:
            return self._line
        if self._line is not None and self._line.port not in self._scene.doomed:
            self._scene.ledger.fail(f"client {self._number}: an idle connection was closed")
        self._line = None
        loop = asyncio.get_running_loop()
        try:
            _, self._line = await loop.create_connection(
                lambda: Line(self._scene), "127.0.0.1", self._scene.port
            )
        except OSError as error:
            self._scene.ledger.fail(f"client {self._number}: no connection: {error}")
            await asyncio.sleep(0.1)
        return self._line

    async def ask(self, line: Line, deed: Deed) -> int:
        """Send a request, note its end in the ledger, and return its status, 0 for none."""
        scene, ledger = self._scene, self._scene.ledger
        self._count += 1
        values = (self._number, self._count, scene.source.randrange(NONCES), int(deed))
        label = f"request {self._count} of client {self._number}"
        ledger.sent += 1
        sent_at = time.monotonic()
        try:
            answer = await line.ask(
                json.dumps({"instances": [values]}).encode(), scene.timeout_s + _LOST_AFTER_S
            )
        except TimeoutError:
            ledger.fail(f"{label} is lost: no answer and no end")
            line.transport.abort()
            self._line = None
            return 0
        now = time.monotonic()
        if answer is None:
            if line.port in scene.doomed:
                ledger.broken += 1
            else:
                ledger.fail(f"{label}: its connection ended, and its frontend lives")
            return 0
        status, body = answer
        if status != 200:
            self._refused(line, label, status, body, sent_at, now)
        elif json.loads(body)["predictions"] == [keyed(values, scene.key)]:
            if deed is Deed.NONE:
                ledger.answered(sent_at, now)
            else:
                ledger.fail(f"{label}: a deed was answered")
        else:
            ledger.fail(f"{label}, {values}: the wrong answer {body!r}")
        return status

    def _refused(
        self, line: Line, label: str, status: int, body: bytes, sent_at: float, now: float
    ) -> None:
        ledger = self._scene.ledger
        words = ""
        with contextlib.suppress(ValueError, KeyError):
            words = json.loads(body)["error"]
        if not words:
            ledger.fail(f"{label}: {status} without words: {body!r}")
            return
        ledger.refused[f"{status} {words}"] += 1
        if status == _EXPIRED:
            due = sent_at + self._scene.timeout_s
            due = max(due, self._scene.stopped.get(line.port, 0.0))
            ledger.overdue(now - due, self._scene.ticker.delay_s(due), label)
