"""Watch calls of gRPC's health service: limits on their number, and one check for all of them.

Anybody may watch, without a key. So a connection and the process have limits on their watches. A
check asks for the status of each service once. A watch ends without a search among the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ringbatch.frontend.codec.grpc_codes import RESOURCE_EXHAUSTED
from ringbatch.frontend.grpc.call_context import CallEnded
from ringbatch.frontend.grpc.status import GrpcStatus
from ringbatch.shm.host.background_tasks import essential_task

MOST: Final = 4096
"""The most watches of the process."""
MOST_OF_CONNECTION: Final = 64
"""The most watches of one connection. A client needs one for each of its own connections."""
LOOK_EVERY_S: Final = 1.0
"""The time between two checks of all watches."""


class Watches:
    """The health watches of a process.

    Args:
        status: returns the status of a service.
        stopping: set once the server is to stop.
    """

    def __init__(self, status: Callable[[str], str], stopping: asyncio.Event) -> None:
        self._status = status
        self._stopping = stopping
        self._of_connections: Counter[object] = Counter()
        self._count = 0
        self._waiting: dict[asyncio.Future[None], tuple[str, str]] = {}
        """The service of each watch, and the status that its client knows."""
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def admitted(self, connection: object) -> Iterator[None]:
        """Count a watch for as long as it lasts.

        Raises:
            CallEnded: there are too many watches.
        """
        if self._of_connections[connection] >= MOST_OF_CONNECTION:
            raise _too_many(f"one connection may have {MOST_OF_CONNECTION}")
        if self._count >= MOST:
            raise _too_many(f"all clients together may have {MOST}")
        self._of_connections[connection] += 1
        self._count += 1
        if self._looking is None:
            self._looking = essential_task("the look at health", self._look_on())
        try:
            yield
        finally:
            self._of_connections[connection] -= 1
            if not self._of_connections[connection]:
                del self._of_connections[connection]
            self._count -= 1
            if not self._count:
                self._looking.cancel()
                self._looking = None

    async def change(self, service: str, known: str) -> None:
        """Return once a service's status is not what the client knows, or the server stops."""
        changed = asyncio.get_running_loop().create_future()
        self._waiting[changed] = service, known
        try:
            await changed
        finally:
            del self._waiting[changed]

    async def _look_on(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._stopping.wait()
            self._look()

    def _look(self) -> None:
        found: dict[str, str] = {}
        stopping = self._stopping.is_set()
        for changed, (service, known) in self._waiting.items():
            if service not in found:
                found[service] = self._status(service)
            if (stopping or found[service] != known) and not changed.done():
                changed.set_result(None)


def _too_many(limit: str) -> CallEnded:
    return CallEnded(GrpcStatus(RESOURCE_EXHAUSTED, f"too many watches of health: {limit}"))
