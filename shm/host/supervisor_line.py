"""Connection of a frontend to the supervisor that started it, over an inherited socket."""

import asyncio
import socket
from contextlib import suppress

from ringbatch.shm.descriptors import BEAT_S
from ringbatch.shm.host.messages import Beat, Failed, Ready, encode


class SupervisorLine:
    """End of the connection in this process.

    Args:
        fd: its number.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    def send(self, message: Ready | Failed) -> None:
        """Send one message."""
        self._socket.sendall(encode(message))

    async def beat(self) -> None:
        """Show again and again that the event loop turns, until cancelled."""
        while True:
            # A supervisor that is stopped reads nothing, and must not stop others.
            with suppress(OSError):
                self._socket.send(encode(Beat()), socket.MSG_DONTWAIT)
            await asyncio.sleep(BEAT_S)
