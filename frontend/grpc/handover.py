"""Departure of a gRPC frontend's clients to the engine that takes over.

While clients are connected all goes on. Once a connection has its age, a GOAWAY that costs no call
says that no further call is for it, and its client connects anew. For that the kernel is to begin
no connection with this process any more. All that listen on the port are one group, in the order in
which they came, and a program says which of them a connection is for.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ringbatch.shm.host.background_tasks import in_thread
from ringbatch.shm.host.socket_filters import ADD, LOAD_WORD, MODULO, RETURN_RESULT, Step, attach
from ringbatch.shm.host.tcp_states import HALF_OPEN, LISTEN, tcp_states

log = logging.getLogger("ringbatch.frontend")

_LOOK_EVERY_S: Final = 0.25
_LOOKS: Final = 2
"""Looks without a client that end the wait: one look misses a client that is not accepted yet."""
_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_RANDOM: Final = 0xFFFFF000 + 56
"""Address of a random number for programs (SKF_AD_OFF + SKF_AD_RANDOM)."""


async def leave(
    listener: socket.socket | None, connections: Callable[[], int], ours: int, limit_s: float
) -> None:
    """Go on until no client is connected any more.

    Args:
        listener: on which this process listens over TCP; None if it does not.
        connections: how many there are.
        ours: how many of the engine's processes do; they did so before those of any other engine.
        limit_s: how long this may take.
    """
    known = quiet = 0
    port = None if listener is None else listener.getsockname()[1]
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while quiet < _LOOKS:
                # Calls go on meanwhile, and would wait for it.
                states = [] if port is None else await in_thread(partial(tcp_states, {port}))
                # A process that closes its socket leaves its place in the group to the last one.
                if listener is not None and (count := states.count(LISTEN)) != known:
                    known = count
                    _steer(listener, ours, count)
                quiet = 0 if connections() or HALF_OPEN in states else quiet + 1
                await asyncio.sleep(_LOOK_EVERY_S)


def _steer(listener: socket.socket, ours: int, count: int) -> None:
    """Have the kernel begin connections with those alone that came after ours."""
    others = count - ours
    if others <= 0:
        return
    steps = (Step(LOAD_WORD, _RANDOM), Step(MODULO, others), Step(ADD, ours), Step(RETURN_RESULT))
    try:
        attach(listener, _SO_ATTACH_REUSEPORT_CBPF, steps)
    except OSError as error:
        log.warning(
            "grpc frontend: clients may still come here and not to the engine that serves in its "
            "stead: %s",
            error.strerror,
        )
