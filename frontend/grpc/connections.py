"""All connections of a process that serves gRPC: who may come, the second's tick, and the stop."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from ringbatch.frontend.grpc.connection import GrpcConnection, GrpcSettings
from ringbatch.frontend.grpc.kept_connection import KeptConnection
from ringbatch.frontend.http.phases import HEAD_TIMEOUT_S
from ringbatch.frontend.http.unix_acceptor import UnixAcceptor
from ringbatch.frontend.payloads.recorder import PayloadRecorder
from ringbatch.frontend.security.credentials import Security

_TICK_S: Final = 1.0
BACKLOG: Final = 2048
"""Connections that wait to be accepted; the kernel's own limit may be lower."""


class TooMany(asyncio.Protocol):
    """A connection that is not served."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse an opened connection; called by the transport."""
        transport.close()


class Connections:
    """Connections of a process that serves gRPC.

    Args:
        listener: on which they come over TCP; None if they do not.
        shared: the Unix socket on which they come, shared with other processes; None without one.
        most: that are served at once.
        settings: settings of each connection.
        security: TLS and API keys.
        payloads: takes drawn requests; None if there is no payload log.
    """

    def __init__(
        self,
        listener: socket.socket | None,
        shared: socket.socket | None,
        most: int,
        settings: GrpcSettings,
        security: Security,
        payloads: PayloadRecorder | None = None,
    ) -> None:
        self._payloads = payloads
        self._listener = listener
        self._shared = shared
        self._most = most
        self._settings = settings
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._acceptor: UnixAcceptor | None = None

    async def listen(self) -> None:
        """Take connections from now on."""
        if self._listener is not None:
            self._server = await self._loop.create_server(
                self._make, sock=self._listener, backlog=BACKLOG, **self._tls()
            )
        if self._shared is not None:
            self._acceptor = UnixAcceptor(self._shared, self._join)

    def leave_shared(self) -> None:
        """Leave the Unix socket's connections to the successor engine.

        It accepts from the same queue.
        """
        if self._acceptor is not None:
            self._acceptor.close()
        self._shared = None

    def count(self) -> int:
        """Return how many there are."""
        return len(self._settings.connections)

    async def tick(self) -> None:
        """Do the work of each second, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            connections = list(self._settings.connections)
            for connection in connections:
                connection.tick()
            changes = self._security.look()
            for connection in connections if changes.keys else ():
                connection.forget()
            for connection in connections if changes.authorities else ():
                connection.leave()

    async def stop(self, limit_s: float) -> None:
        """Accept waiting connections, send all clients elsewhere, and serve what they have sent.

        It takes at most `limit_s`.
        """
        listeners = [one for one in (self._listener, self._shared) if one is not None]
        queued = [connection for listener in listeners for connection in _accept_all(listener)]
        for taking in (self._server, self._acceptor):
            if taking is not None:
                taking.close()
        await asyncio.gather(*map(self._join, queued))
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                for connection in list(self._settings.connections):
                    connection.stop()
                while self._settings.connections:
                    await asyncio.sleep(0.01)
        for connection in list(self._settings.connections):
            connection.abort()

    def _make(self) -> asyncio.BaseProtocol:
        if len(self._settings.connections) >= self._most:
            return TooMany()
        if self._payloads is not None:
            return KeptConnection(self._payloads, self._settings, self._loop)
        return GrpcConnection(self._settings, self._loop)

    async def _join(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._make, connection, **self._tls())

    def _tls(self) -> dict[str, Any]:
        context = self._security.context
        if context is None:
            return {}
        return {"ssl": context, "ssl_handshake_timeout": HEAD_TIMEOUT_S}


def _accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Accept connections until none waits, or this process can open no more."""
    with suppress(OSError):
        while True:
            yield listener.accept()[0]
