"""Connections beyond the limit: each gets an answer that says so, and is closed.

To close one before its client's request is read would reset it, and the answer with it. So what
comes is dropped for a moment, until the client hangs up.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.server import ServerState

from ringbatch.frontend.codec.limit_messages import too_many_connections
from ringbatch.frontend.codec.outcome import outcome
from ringbatch.frontend.http.lingering_close import LINGER_S
from ringbatch.frontend.http.response_heads import ResponseHeads, front

MOST: Final = 1024
"""Connections that get that answer; any more are closed without one."""


class TurnedAway(asyncio.Protocol):
    """Connection beyond the limit: gets one answer, and is closed.

    Args:
        others: other such connections that are still open.
        answer: the whole answer to the client.
    """

    def __init__(self, others: "set[TurnedAway]", answer: bytes) -> None:
        self._others = others
        self._answer = answer
        self._over: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse an opened connection; called by the transport."""
        stream: asyncio.Transport = transport  # type: ignore[assignment]
        if len(self._others) >= MOST:
            stream.abort()
            return
        self._others.add(self)
        self._over = asyncio.get_running_loop().call_later(LINGER_S, stream.abort)
        stream.write(self._answer)
        if stream.can_write_eof():
            stream.write_eof()
        else:
            stream.close()

    def data_received(self, data: bytes) -> None:
        """Ignore received bytes; called by the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a closed connection; called by the transport."""
        self._others.discard(self)
        if self._over is not None:
            self._over.cancel()


def at_most(
    connections: int,
    served: Callable[..., asyncio.BaseProtocol],
    state: ServerState,
    make_room: Callable[[], bool] = lambda: False,
) -> Callable[..., asyncio.BaseProtocol]:
    """Return the factory of the protocol of every connection.

    Args:
        connections: the most that are served at once.
        served: makes the protocol of one of these, as uvicorn does; it puts itself among the
            connections of `state`.
        state: the server's.
        make_room: called for a connection beyond these; returns whether it takes another's place.
    """
    others: set[TurnedAway] = set()
    heads = ResponseHeads(state)

    def make(*arguments: Any) -> asyncio.BaseProtocol:
        if len(state.connections) < connections or make_room():
            return served(*arguments)
        status, body, headers = outcome(too_many_connections(connections))
        head = heads.other(status, headers, keep_alive=False)
        return TurnedAway(others, front(head, heads.ids.make(), len(body)) + body)

    return make
