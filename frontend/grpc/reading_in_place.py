"""Reading a connection into memory that all connections of the process share.

A transport makes a bytes object of what it has read, which takes as long as copying it to where it
belongs. What is read here lies in the processor's caches when it is copied from there to its slot.
"""

import asyncio
from typing import Final, Protocol

IN_PLACE_BYTES: Final = 1 << 18
"""Bytes that are read at once. They fit into the caches of one core."""


class ReadingConnection(Protocol):
    """Interface of the connection that is read."""

    def received_in_place(self, data: memoryview) -> None:
        """Take received bytes from memory that others use afterwards."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End the closed connection."""

    def pause_writing(self) -> None:
        """Pause: the client does not read."""

    def resume_writing(self) -> None:
        """Go on: the client reads again."""


class ReadingInPlace(asyncio.BufferedProtocol):
    """The protocol of a connection with large messages, from the first of them on.

    Args:
        owner: gets the received bytes.
        memory: is read into, of whichever connection; nothing is left there between two reads.
    """

    __slots__ = ("_memory", "_owner")

    def __init__(self, owner: ReadingConnection, memory: bytearray) -> None:
        self._owner = owner
        self._memory = memoryview(memory)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes; called by the transport."""
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes; called by the transport."""
        self._owner.received_in_place(self._memory[:nbytes])

    def eof_received(self) -> None:
        """Treat the end of the peer's bytes as its disconnect; called by the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass a pause of the client on; called by the transport."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the end of a pause on; called by the transport."""
        self._owner.resume_writing()
