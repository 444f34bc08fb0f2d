"""Target of requests: address and protocol. Pure."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Wire(StrEnum):
    """Protocols on the wire."""

    HTTP1 = "http1"
    EVENTS = "events"
    """HTTP/1.1, with answers in server-sent events."""
    GRPC = "grpc"
    CLIENT = "client"
    """Through shared memory, by ringbatch's own Client."""


@dataclass(frozen=True)
class Target:
    """Target of requests.

    Attributes:
        host: an address and no name, which would be looked up for each connection; of a Unix socket
            its path.
        port: of TCP; 0 with a Unix socket.
        wire: the protocol.
        engine: its name, or the process id of its supervisor, for a Client; None for the only one.
        model: of a Client's requests.
        own_heads: True if each request has a ``traceparent`` of its own.
        source: own address of connections; empty for the one that the kernel chooses.
        openai: True if answers come in events of OpenAI's.
    """

    host: str
    port: int
    wire: Wire = Wire.HTTP1
    engine: str | int | None = None
    model: str = ""
    own_heads: bool = False
    source: str = ""
    openai: bool = False

    @property
    def address(self) -> tuple[str, int] | str:
        """The server's address, as connect(2) takes it."""
        return self.host if self.host.startswith("/") else (self.host, self.port)

    def as_object(self) -> dict[str, Any]:
        """Return the target as an object for JSON."""
        return asdict(self)

    @classmethod
    def from_object(cls, found: dict[str, Any]) -> "Target":
        """Return the target of `as_object`."""
        return cls(**{**found, "wire": Wire(found["wire"])})
