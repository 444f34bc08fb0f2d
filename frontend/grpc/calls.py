"""The calls that are under way over gRPC, and how they end when the server is to stop.

grpcio can stop by itself: it tells clients to go elsewhere and waits for the calls it has. But what
clients have sent by then and nobody has picked up yet, it cancels, and a client that reads
CANCELLED does not try elsewhere. So first all that comes is refused in words, until nothing is
under way any more and nothing comes; then grpcio stops.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import grpc

from ringbatch.shm.errors import Draining

Context = Any
"""What grpc.aio gives a method to learn of its call and to end it."""

_QUIET_S: Final = 0.1
"""Without a new call for so long, none is on its way."""
_PATIENCE: Final = 10
"""How many times that long the stop waits for clients that do not give up."""


class Calls:
    """Those of one server; ``with calls:`` is one that infers, under way.

    Attributes:
        stopping: set once new ones are refused.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._readings: set[asyncio.Task[None]] = set()
        self._count = 0
        self._refused = 0
        self._idle = asyncio.Event()
        """Set once nothing is under way, if the server is to stop."""

    def __enter__(self) -> None:
        """Begin; raises `Draining` where the server is to stop."""
        if self.stopping.is_set():
            self._refused += 1
            raise Draining
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count and self.stopping.is_set():
            self._idle.set()

    async def read(self, context: Context, take: Callable[[Any], Awaitable[None]]) -> None:
        """Give every request that a client streams to `take`, one after the other.

        Raises:
            Draining: the server is to stop, and the client has not come to its end.
        """
        if self.stopping.is_set():
            raise Draining
        reading = asyncio.create_task(_read(context, take))
        self._readings.add(reading)
        try:
            await asyncio.wait({reading})
        finally:
            self._readings.discard(reading)
            reading.cancel()
        if reading.cancelled():
            raise Draining
        reading.result()

    async def stop(self, limit_s: float) -> None:
        """Refuse new calls, read no more of the streams, and wait until nothing is under way, at
        most `limit_s`."""
        self.stopping.set()
        if not self._count:
            self._idle.set()
        for reading in self._readings:
            reading.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
                for _ in range(_PATIENCE):
                    refused = self._refused
                    await asyncio.sleep(_QUIET_S)
                    if refused == self._refused:
                        break


async def _read(context: Context, take: Callable[[Any], Awaitable[None]]) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await take(request)
