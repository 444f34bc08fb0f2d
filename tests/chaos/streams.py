"""Clients that read answers in parts, each of which proves whose it is and which.

The model works in steps, and can go on where an earlier worker stopped. So a client must get each
part once and in order, whichever workers and collectors are killed.
"""

import asyncio
import json
import time
from typing import Final

from chaos.clients import Scene
from chaos.keyed import NONCES

MODEL: Final = "streamed"
MOST_PARTS: Final = 200
STEP_S: Final = 0.01
_LOST_AFTER_S: Final = 40.0
_MASK: Final = (1 << 40) - 1
_PATH: Final = f"/v1/models/{MODEL}:predict"


def part(nonce: int, number: int, key: int) -> int:
    """The right part of that number, of an answer."""
    return (nonce * 1_000_003 + number * 48_271 ^ key) & _MASK


def source(key: int) -> str:
    """The model file; a row of `count` parts goes on behind those in `made`."""
    return f"""
import time

import numpy as np
from ringbatch.engine import Tensor

inputs = [
    Tensor("nonce", "INT64", []),
    Tensor("count", "INT64", []),
    Tensor("made", "INT64", [-1], default=[]),
]
outputs = [Tensor("part", "INT64", [])]
resumable = {{"part": "made"}}


def part(nonce, number):
    return (nonce * 1_000_003 + number * 48_271 ^ {key}) & {_MASK}


def begin(nonce, count, made):
    rows = [[int(one), int(end), len(done)] for one, end, done in zip(nonce, count, made)]
    for row, done in zip(rows, made):
        assert done.tolist() == [part(row[0], number) for number in range(row[2])]
    return rows


def step(states):
    time.sleep({STEP_S})
    parts = [part(nonce, number) for nonce, _, number in states]
    for row in states:
        row[2] += 1
    return np.array(parts), [number >= count for _, count, number in states]
"""


class StreamClient:
    """Client that asks for one answer in parts after the other, until the scene is over.

    Args:
        scene: of all clients.
        number: of this client.
    """

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene = scene
        self._number = number
        self._count = 0

    async def run(self) -> None:
        """Send requests until the scene is over."""
        while self._scene.going:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._scene.port)
            except OSError as error:
                self._scene.ledger.fail(f"stream client {self._number}: no connection: {error}")
                await asyncio.sleep(0.1)
                continue
            port = writer.get_extra_info("sockname")[1]
            try:
                while self._scene.going and await self._ask(reader, writer, port):
                    pass
            finally:
                writer.transport.abort()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> bool:
        """Send a request, note its end in the ledger, and return whether its connection goes on."""
        scene, ledger = self._scene, self._scene.ledger
        self._count += 1
        nonce, count = scene.source.randrange(NONCES), scene.source.randint(1, MOST_PARTS)
        label = f"stream {self._count} of client {self._number}"
        body = json.dumps({"instances": [{"nonce": nonce, "count": count}]}).encode()
        head = (
            f"POST {_PATH} HTTP/1.1\r\nHost: chaos\r\nAccept: text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        ledger.sent += 1
        sent_at = time.monotonic()
        writer.write(head.encode() + body)
        found: list[int] = []
        try:
            async with asyncio.timeout(scene.timeout_s + _LOST_AFTER_S):
                words = await self._read(reader, found)
        except TimeoutError:
            ledger.fail(f"{label} is lost behind {len(found)} parts: no end")
            return False
        except (asyncio.IncompleteReadError, ConnectionError):
            if port in scene.doomed:
                ledger.broken += 1
            else:
                ledger.fail(f"{label}: its connection ended, and its frontend lives")
            return False
        right = [part(nonce, number, scene.key) for number in range(count)]
        if found != right[: len(found)]:
            ledger.fail(f"{label}: wrong parts, {found} and not {right}")
        elif words:
            ledger.fail(f"{label}: cut off behind {len(found)} of {count} parts: {words}")
        elif len(found) < count:
            ledger.fail(f"{label}: ended behind {len(found)} of {count} parts")
        else:
            ledger.answered(sent_at, time.monotonic())
        return True

    async def _read(self, reader: asyncio.StreamReader, found: list[int]) -> str:
        """Read one answer, its parts to a list; return the error at its end, or nothing."""
        ledger, delay_s = self._scene.ledger, self._scene.ticker.delay_s
        head = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" not in head.lower():
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            return (await reader.readexactly(length)).decode()
        words, text, last_at = "", b"", 0.0
        while size := int(await reader.readuntil(b"\r\n"), 16):
            text += (await reader.readexactly(size + 2))[:-2]
            *events, text = text.split(b"\n\n")
            for event in events:
                if not event.startswith(b"data: "):
                    continue
                answer = json.loads(event.removeprefix(b"data: "))
                if "error" in answer:
                    words = answer["error"]
                    continue
                found += [
                    one["part"] if isinstance(one, dict) else one for one in answer["predictions"]
                ]
                now = time.monotonic()
                if last_at:
                    gap_s = now - last_at - delay_s(last_at)
                    ledger.longest_gap_s = max(ledger.longest_gap_s, gap_s)
                last_at = now
        await reader.readexactly(2)
        return words
