"""Stop of a frontend's server with connections that the kernel took but the server did not."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from uvicorn.config import Config

from ringbatch.frontend.http.server import TickingServer

QUEUED = 3


class LastWords(asyncio.Protocol):
    """Application that echoes a body, but only once its client has ended it."""

    def __init__(self, config: Config, server_state: Any, app_state: Any, loop: Any) -> None:
        self._connections = server_state.connections
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._data += data

    def eof_received(self) -> None:
        self._transport.write(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def shutdown(self) -> None:
        """Do nothing, as no connection is idle."""


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request gets here")


class Slow(TickingServer):
    """Server that completes its handshakes only all together."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._hands = asyncio.Barrier(QUEUED)

    async def _join(self, connection: socket.socket) -> None:
        await self._hands.wait()
        await super()._join(connection)


def stopped_over_queue(
    end: Callable[[list[socket.socket]], None], kind: type[TickingServer] = TickingServer
) -> list[socket.socket]:
    """The clients of a server that was stopped before it had accepted any of them.

    Args:
        end: called once the server waits for them.
        kind: of server.
    """
    clients: list[socket.socket] = []

    async def run() -> None:
        config = Config(no_app, http=LastWords, lifespan="off", log_config=None)
        config.load()
        server = kind(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([])
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        for number in range(QUEUED):
            clients.append(socket.create_connection(listener.getsockname()))
            clients[-1].sendall(b"queued %d" % number)
        stop = asyncio.get_running_loop().create_task(server.shutdown([listener]))
        while len(server.server_state.connections) < QUEUED:
            assert not stop.done(), "it stopped without its queue"
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(clients[0].getpeername())
        end(clients)
        await stop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return clients


@pytest.mark.parametrize("kind", [TickingServer, Slow])
def test_a_stop_serves_the_connections_that_nobody_accepted(kind: type[TickingServer]) -> None:
    def end(clients: list[socket.socket]) -> None:
        for client in clients:
            client.shutdown(socket.SHUT_WR)

    with ExitStack() as stack:
        clients = [stack.enter_context(client) for client in stopped_over_queue(end, kind)]
        assert [client.recv(100) for client in clients] == [b"queued 0", b"queued 1", b"queued 2"]
