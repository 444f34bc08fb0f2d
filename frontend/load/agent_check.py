"""Server for HAProxy's agent-check, on a port of its own.

Each client that connects gets one reply line, without a request. For HAProxy, a refused connection
or silence is no news. So the server accepts no connection before the engine serves: of two engines
that share the socket during a handover, only the one that serves answers.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ringbatch.frontend.load.haproxy_weight import EngineLoad, word

LINGER_S: Final = 1.0
"""Longest stay of a client after its answer."""
MOST: Final = 128
"""Most clients that stay at once; further ones are disconnected as soon as they are answered."""
_BACKLOG: Final = 1024
"""Most connections that wait to be accepted, if the kernel allows as many."""
_LOOK_EVERY_S: Final = 0.1


class Agent:
    """Server for HAProxy's agent-check.

    Args:
        listener: bound, and listening.
        serves: whether the engine has begun to serve.
        load: of the engine, now.
    """

    def __init__(
        self, listener: socket.socket, serves: Callable[[], bool], load: Callable[[], EngineLoad]
    ) -> None:
        self._listener = listener
        self._serves = serves
        self._load = load
        self._answered: set[asyncio.BaseProtocol] = set()

    async def run(self) -> None:
        """Answer until cancelled."""
        while not self._serves():
            await asyncio.sleep(_LOOK_EVERY_S)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._protocol, sock=self._listener, backlog=_BACKLOG)
        async with server:
            await server.serve_forever()

    def _protocol(self) -> asyncio.Protocol:
        return _AgentConnection(self._load, self._answered)


class _AgentConnection(asyncio.Protocol):
    """Connection of HAProxy's agent-check: gets one reply line.

    Args:
        load: as of `Agent`.
        answered: the connections that are answered and stay.
    """

    def __init__(self, load: Callable[[], EngineLoad], answered: set[asyncio.BaseProtocol]) -> None:
        self._load = load
        self._answered = answered
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Answer an opened connection; called by the transport."""
        transport.write(word(self._load()))
        if len(self._answered) >= MOST:
            transport.close()
            return
        self._answered.add(self)
        # Closed with what it has sent still unread, a client would be reset before it reads this.
        # One that has not waited for it is gone.
        with suppress(OSError):
            transport.write_eof()
        self._end = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a closed connection; called by the transport."""
        self._answered.discard(self)
        if self._end is not None:
            self._end.cancel()
