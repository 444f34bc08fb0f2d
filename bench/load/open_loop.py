"""Requests that come when they like: an open loop, whose rate no slow server can lower.

Each arrival takes a kept connection that is free, or opens one. The time of an answer counts from
the instant at which the request was due, so a client that falls behind hides nothing.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import uvloop
from host.server import HOST

Rate = Callable[[float], float]
"""Requests a second, by the seconds from the start."""


class Answer(NamedTuple):
    """End of one request.

    Attributes:
        due_s: time from the start at which it was due.
        status: HTTP status; 0 if the connection broke.
        took_s: time from the instant at which it was due.
        right: whether a status of 200 came with the right answer.
    """

    due_s: float
    status: int
    took_s: float
    right: bool


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.write: Callable[[bytes], None]
        self.close: Callable[[], None]
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.ends = False
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().rpartition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(body) >= length:
            self._data = b""
            self.ends = b"\r\nconnection: close" in head.lower()
            self._settle((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends = True
        self._settle((0, b""))

    def _settle(self, answer: tuple[int, bytes]) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(answer)


class _Load:
    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._free: deque[_Connection] = deque()
        self.answers: list[Answer] = []

    async def ask(self, number: int, due_s: float, start: float) -> None:
        body = json.dumps({"instances": [number]}).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        try:
            connection = self._kept() or await self._connect()
            connection.answer = asyncio.get_running_loop().create_future()
            connection.write(head.encode() + body)
            status, text = await connection.answer
        except OSError:
            status, text = 0, b""
        took_s = time.monotonic() - start - due_s
        right = status == 200 and json.loads(text)["predictions"] == [2.0 * number]
        self.answers.append(Answer(due_s, status, took_s, right))
        if status and not connection.ends:
            self._free.append(connection)

    def _kept(self) -> _Connection | None:
        """Return a free connection that is still open, if there is one."""
        while self._free:
            connection = self._free.pop()
            if not connection.ends:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(_Connection, HOST, self._port)
        connection.write, connection.close = transport.write, transport.close
        return connection

    def close(self) -> None:
        for connection in self._free:
            connection.close()


async def _run(port: int, path: str, rate: Rate, seconds: float) -> list[Answer]:
    load, start, count, due_s = _Load(port, path), time.monotonic(), 0, 0.0
    async with asyncio.TaskGroup() as tasks:
        while (now_s := time.monotonic() - start) < seconds:
            while due_s < now_s:
                # Small whole numbers are exact in FP32.
                tasks.create_task(load.ask(count % 10_000, due_s, start))
                count += 1
                due_s += 1 / rate(due_s)
            await asyncio.sleep(0.001)
    load.close()
    return load.answers


def open_loop(port: int, path: str, rate_per_s: float | Rate, seconds: float) -> Sequence[Answer]:
    """Send requests at a rate and wait for all their ends.

    Args:
        port: of 127.0.0.1.
        path: of a V1 model that doubles a number.
        rate_per_s: at which requests come.
        seconds: for how long.
    """
    rate = rate_per_s if callable(rate_per_s) else lambda _: rate_per_s
    return uvloop.run(_run(port, path, rate, seconds))
