"""Interfaces between a call and its handler."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from ringbatch.frontend.grpc.answer_blocks import Metadata
from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.part_sheet import PartSheets
from ringbatch.frontend.grpc.status import GrpcStatus
from ringbatch.frontend.streams.outlet import Outlet
from ringbatch.shm.errors import RequestError


class CallEnded(Exception):
    """A call has ended, in the middle of its handler.

    Args:
        status: how.
    """

    def __init__(self, status: GrpcStatus) -> None:
        super().__init__(status.text)
        self.status = status


class CallContext(Protocol):
    """A call as its handler sees it.

    Attributes:
        connection: identifies the connection of the call.
        head: of the call.
        client: the address of its client.
        account: its account word, see `ringbatch.shm.account`.
        trailing: metadata that stand behind its answer.
        outlet: of its messages.
        sheets: of its connection.
    """

    connection: object
    head: CallHead
    client: str
    account: int
    trailing: Metadata
    outlet: Outlet[CallHead]
    sheets: PartSheets

    @property
    def full(self) -> bool:
        """True if so many bytes wait for its client that nothing more is read."""

    def stalled_s(self) -> int:
        """Return for how many seconds its client has taken nothing, though messages wait."""

    def remaining_ns(self) -> int:
        """Return how long its client still waits; 0 without a deadline, below 0 after it."""

    async def read(self) -> bytes | None:
        """Return the next message; None after the last one.

        Raises:
            Draining: the server is to stop, and the client has not come to its end.
        """

    def keep(self, size: int) -> None:
        """Count a message of so many bytes that waits for those before it; if below 0, it is done.

        If too much waits, nothing more is read.
        """

    @property
    def waits(self) -> bool:
        """True if a message waits for its client, so that others have to wait behind it."""

    def send(self, data: bytes) -> None:
        """Send a message; no other waits."""

    async def write(self, data: bytes) -> None:
        """Send a message, once the ones before have found room."""

    def fail(self, error: RequestError) -> None:
        """End the call at any point."""


class MethodHandler(NamedTuple):
    """Handler of one method.

    Attributes:
        infers: True for ModelInfer, which needs no other attribute.
        streams_requests: True if any number of messages come.
        serve: gets the one message, or None if they stream, and the call; returns the status of
            its failure, None for a success. It raises nothing.
        is_open: True if it serves clients without a key.
        max_bytes: of a message; None if it may be as long as any.
    """

    infers: bool
    streams_requests: bool
    serve: Callable[[bytes | None, Any], Awaitable[GrpcStatus | None]]
    is_open: bool = False
    max_bytes: int | None = None
