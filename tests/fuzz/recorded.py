"""Record of a fuzzed connection, and the transport that makes it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from fuzz.talk import PROXY


@dataclass
class Seen:
    """Record of the effects of some bytes."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    """Requests to the models."""
    headers: list[tuple[bytes, list[tuple[bytes, bytes]]]] = field(default_factory=list)
    """Path and headers of what Falcon served, once it had."""
    written: bytes = b""
    """Bytes to a client that reads."""
    unread_bytes: int = 0
    """Written to one that does not."""
    closed: bool = False
    taken: list[tuple[Any, ...]] = field(default_factory=list)
    """Requests to the models that came by the fast lane."""
    peak_bytes: int = 0
    """Most memory that the connection took, if that was measured."""
    cpu_s: float = 0.0


class Transport(asyncio.Transport):
    """Transport that keeps what is written; a deaf client never takes anything."""

    def __init__(self, seen: Seen) -> None:
        super().__init__({"peername": (PROXY, 1024)})
        self.protocol: Any = None
        self._seen = seen
        self._reading = True
        self._closing = False
        self._deaf = self._ended = False

    def write(self, data: Any) -> None:
        assert not self._ended, "written after the end"
        if self._closing:
            return
        if self._deaf:
            self._seen.unread_bytes += len(data)
            self.protocol.pause_writing()
        else:
            self._seen.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ended = True

    def turn_deaf(self) -> None:
        self._deaf = True

    def close(self) -> None:
        self._closing = True
        if not self.get_write_buffer_size():
            self.abort()

    def abort(self) -> None:
        self._closing = True
        if not self._seen.closed:
            self._seen.closed = True
            asyncio.get_running_loop().call_soon(self._lost)

    def _lost(self) -> None:
        self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self._seen.unread_bytes
