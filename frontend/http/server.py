"""uvicorn's server as every process of ringbatch that serves HTTP runs it."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import Server

from ringbatch.frontend.http.phases import HEAD_TIMEOUT_S
from ringbatch.frontend.http.unix_acceptor import UnixAcceptor
from ringbatch.frontend.security.credentials import Security
from ringbatch.shm.host.credentials import Credentials

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Blocked from the fork until the server runs: a stop that came in between would end the process
at once, and reset the connections that wait in its socket's queue."""
_TICK_S: Final = 1.0


class TickingServer(Server):
    """uvicorn's server, woken once a second rather than ten times.

    Args:
        config: uvicorn's.
        security: of its connections.
        keys_changed: called when other API keys are in force.
        leaving: whether clients are to go elsewhere, because the engine is to stop.
        serving: called once connections are accepted.
    """

    def __init__(
        self,
        config: Config,
        security: Security | None = None,
        keys_changed: Callable[[], None] = lambda: None,
        leaving: Callable[[], bool] = lambda: False,
        serving: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._security = security or Security(Credentials())
        self._keys_changed = keys_changed
        self._leaving = leaving
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._exit = asyncio.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen. Only from here on does a signal find a server that stops gracefully."""
        self.servers = [await self._server(listener) for listener in sockets or ()]
        self.started = True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        self._serving()

    async def main_loop(self) -> None:
        """Keep the date header, the heartbeat and the timeouts of connections, until the exit."""
        while not await self.on_tick(0):
            connections: list[Any] = list(self.server_state.connections)
            for connection in connections:
                connection.tick()
            if self._leaving():
                for connection in connections:
                    connection.leave()
            changes = self._security.look()
            if changes.keys:
                self._keys_changed()
                for connection in connections:
                    connection.forget()
            if changes.authorities:
                self._part()
                # And from those who were shaking hands just now.
                self._loop.call_later(HEAD_TIMEOUT_S, self._part)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._exit.wait()

    def _part(self) -> None:
        """Answer begun requests, and close: clients of removed authorities must not stay."""
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Finish all connections that clients take for accepted, then close.

        That is more than was accepted: closing a listening socket resets the connections in its
        queue.
        """
        queued = [connection for sock in sockets or () for connection in _accept_all(sock)]
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        # Before the base class looks which connections there are to wait for; and at once, because
        # over TLS each waits for a client who may say nothing.
        await asyncio.gather(*map(self._join, queued))
        await super().shutdown(sockets)

    async def _server(self, listener: socket.socket) -> Any:
        if listener.family == socket.AF_UNIX:
            return UnixAcceptor(listener, self._join)
        return await self._loop.create_server(
            self._protocol(), sock=listener, backlog=self.config.backlog, **self._tls()
        )

    async def _join(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol(), connection, **self._tls())

    def _protocol(self) -> Callable[[], asyncio.BaseProtocol]:
        config: Any = self.config
        return partial(config.http_protocol_class, config, self.server_state, {}, self._loop)

    def _tls(self) -> dict[str, Any]:
        context = self._security.context
        if context is None:
            return {}
        # A handshake gets as long as a head, because no phase counts connections in one.
        return {"ssl": context, "ssl_handshake_timeout": HEAD_TIMEOUT_S}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal without raising it again: a requested stop is no failure."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._exit.set)


def _accept_all(listener: Any) -> Iterator[socket.socket]:
    """Accept connections until none waits, or this process can open no more."""
    with suppress(OSError):
        while True:
            yield listener.accept()[0]
