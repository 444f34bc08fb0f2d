"""A model server of next to no cost behind V1: what is measured is what stands in front of it.

`models/matmul16.py`'s product for all instances of a request at once, on uvloop, with no framework.
With --hold-ms an answer takes that long, and only --at-once of them are worked on at a time, as
behind a model with so many copies.
"""

import argparse
import asyncio
from typing import Any

import numpy as np
import orjson
import uvloop

W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)
_LENGTH = b"content-length:"


class Connection(asyncio.Protocol):
    """Keep-alive connection, whose requests are answered in the order they came."""

    def __init__(self, hold_s: float, places: asyncio.Semaphore) -> None:
        self._hold_s = hold_s
        self._places = places
        self._buffer = bytearray()
        self._work: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        """Take a new connection; called by the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take received bytes; called by the transport."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = bytes(self._buffer[:end]).lower()
        size = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0]) if _LENGTH in head else 0
        if len(self._buffer) < end + size:
            return
        body = bytes(self._buffer[end : end + size])
        del self._buffer[: end + size]
        if not head.startswith(b"post "):
            self._answer(b"{}")
        elif self._hold_s:
            task = asyncio.ensure_future(self._hold(body))
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        else:
            self._answer(predictions(body))

    async def _hold(self, body: bytes) -> None:
        async with self._places:
            await asyncio.sleep(self._hold_s)
        self._answer(predictions(body))

    def _answer(self, body: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


def predictions(body: bytes) -> bytes:
    """Return the answer to a request."""
    x = np.array(orjson.loads(body)["instances"], np.float32)
    return orjson.dumps({"predictions": x @ W}, option=orjson.OPT_SERIALIZE_NUMPY)


async def serve(port: int, hold_s: float, at_once: int) -> None:
    """Serve until the process is ended."""
    places = asyncio.Semaphore(at_once)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(hold_s, places), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hold-ms", type=float, default=0.0)
    parser.add_argument("--at-once", type=int, default=1)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.hold_ms / 1000, options.at_once))
