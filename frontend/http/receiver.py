"""Reading of large bodies from a connection into the slots of their requests."""

import asyncio
from typing import Final, Protocol

from ringbatch.frontend.request.calls import Upload

HEAD_BYTES: Final = 1 << 14
"""Bytes that are read at once while no body is received: a head and its JSON text. They hold little
of the body, which is copied once more."""


class ReceivingConnection(Protocol):
    """Interface of the connection that a body comes over."""

    def data_received(self, data: bytes) -> None:
        """Take received bytes whose place was not known."""

    def arrived(self, upload: Upload) -> None:
        """Take a request whose body is complete in its slot."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End the closed connection."""

    def pause_writing(self) -> None:
        """Pause: the client does not read."""

    def resume_writing(self) -> None:
        """Go on: the client reads again."""


class Receiver(asyncio.BufferedProtocol):
    """The protocol of a connection that has large bodies, from the first of them on.

    Args:
        owner: gets everything but the bytes of uploads.

    Attributes:
        received_bytes: of the body that came last.
    """

    __slots__ = ("_head", "_memory", "_owner", "_upload", "received_bytes")

    def __init__(self, owner: ReceivingConnection) -> None:
        self._owner = owner
        self._head = memoryview(bytearray(HEAD_BYTES))
        self._memory: memoryview | None = None
        """Memory of the upload; None if there is none."""
        self._upload: Upload | None = None
        self.received_bytes = 0

    def receive(self, upload: Upload, begun: memoryview) -> None:
        """Write the bytes that come next into the memory of an upload, until it is full.

        Args:
            upload: its memory has room for more than `begun`.
            begun: bytes of its body that have come already.
        """
        memory = upload.memory
        self.received_bytes = len(begun)
        memory[: self.received_bytes] = begun
        self._upload, self._memory = upload, memory

    def abandon(self) -> None:
        """Abandon the upload, if there is one; its memory will belong to another request."""
        upload, self._upload = self._upload, None
        self._memory = None
        if upload is not None:
            upload.abandon()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes; called by the transport."""
        memory = self._memory
        return self._head if memory is None else memory[self.received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Count received bytes; called by the transport."""
        memory = self._memory
        if memory is None:
            self._owner.data_received(bytes(self._head[:nbytes]))
            return
        self.received_bytes += nbytes
        if self.received_bytes == len(memory):
            upload, self._upload = self._upload, None
            self._memory = None
            assert upload is not None, "the memory is that of an upload"
            self._owner.arrived(upload)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass a pause of the client on; called by the transport."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the end of a pause on; called by the transport."""
        self._owner.resume_writing()


def read_with(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Give a transport another protocol. uvloop checks its kind only when reading starts."""
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if reading:
        transport.resume_reading()
