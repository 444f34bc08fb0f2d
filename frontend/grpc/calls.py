"""Calls with a task of their own: streams, and methods that take a while.

That is every call but the usual ModelInfer, which comes in one piece and is answered out of a slot.
Each has a task of the event loop for as long as it lasts, which gets a `ServedCall`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from ringbatch.frontend.codec.grpc_codes import OK, RESOURCE_EXHAUSTED
from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.grpc.answer_blocks import HEAD, Metadata, trailers, trailers_alone
from ringbatch.frontend.grpc.call_context import CallEnded, MethodHandler
from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.large_messages import ArrivingMessage
from ringbatch.frontend.grpc.message_reader import MessageReader, Packed, framed
from ringbatch.frontend.grpc.part_sheet import PartSheets
from ringbatch.frontend.grpc.status import GrpcStatus, grpc_status
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.expanding import expanded
from ringbatch.frontend.http.phases import BODY_TOO_SLOW, Clock, Phase
from ringbatch.frontend.http.stall_clock import StallClock
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.streams.outlet import Outlet
from ringbatch.shm.errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    RequestError,
    RequestTooLarge,
)

_NO_END: Final = "the call ended in the middle of its message"
_BEGUN_BYTES: Final = 1 << 10
"""Beginning of a message, in bytes, that is searched for its tensor: mostly no more precedes it."""
MOST_KEYLESS: Final = 1024
"""The most calls without a key in the process that wait for their clients."""
_MORE_MESSAGES: Final = "a call of this method has one message"
"""UNIMPLEMENTED, as gRPC's table of status codes has it."""


class CallConnection(Protocol):
    """The connection of a call.

    Attributes:
        keyless: the process's calls without a key that wait for the client to send its message or
            to take its answer. The call that waits longest comes first.
    """

    client: str
    core: Connection[CallHead]
    budget: BodyBudget
    max_request_bytes: int
    keyless: "dict[Stream[CallHead], ServedCall]"
    sheets: PartSheets

    def account_of(self, head: CallHead) -> int:
        """Return the account word of a call."""

    def infer(self, stream: Stream[CallHead], data: bytes, timeout_ns: int) -> None:
        """Take the whole message of a ModelInfer, and the call with it."""

    def expect(self, stream: Stream[CallHead], begun: bytes) -> ArrivingMessage[Any] | None:
        """Take a ModelInfer's first bytes; return None if it is to be gathered."""

    def arrived(
        self, stream: Stream[CallHead], message: ArrivingMessage[Any], timeout_ns: int
    ) -> None:
        """As `infer`, of what it was expected for."""

    def refused(self, error: RequestError, *, infers: bool) -> None:
        """Record a call, perhaps a ModelInfer, that has ended before its handler."""

    def let_go(self, stream: Stream[CallHead]) -> None:
        """Forget an ended call."""

    def attempt(self, number: int, act: Callable[[], None]) -> None:
        """Act for the call on a stream; an error ends only that stream."""

    def flush_soon(self) -> None:
        """Schedule a flush of the connection, as there may be something to send."""


class ServedCall:
    """Call that a method handler serves. See `CallContext`.

    Args:
        owner: its connection.
        stream: its stream of the connection.
        method: the handler that serves it.
        loop: the event loop of both.
    """

    def __init__(
        self,
        owner: CallConnection,
        stream: Stream[CallHead],
        method: MethodHandler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.connection: object = owner
        self.head = stream.head
        self.client = owner.client
        self.account = owner.account_of(stream.head)
        self.trailing: Metadata = ()
        self.outlet = Outlet(owner.core, stream, owner.flush_soon)
        self.sheets = owner.sheets
        self._owner = owner
        self._stream = stream
        self._method = method
        self._loop = loop
        max_bytes = method.max_bytes or owner.max_request_bytes
        self._reader = MessageReader(self.head.coding, max_bytes, owner.budget)
        self._looked_into = not method.infers
        self._message: ArrivingMessage[Any] | None = None
        self._received = 0
        self._unreturned = 0
        self._clock = Clock(0)
        self._stall = StallClock()
        self.stalled_s = partial(self._stall.seconds, stream.look)
        self._task: asyncio.Task[Any] | None = None
        """Expands the message of the call, and then serves it."""
        self._begun = False
        """True once the call has come to its handler."""
        self._arrival: asyncio.Future[None] | None = None
        self._rooms: list[asyncio.Future[None]] = []
        """Each of a message that waits for those before it."""
        self._stopping = False
        self._deadline_s = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        if self.head.timeout_ns:
            timeout_s = self.head.timeout_ns / 1e9
            self._deadline_s = loop.time() + timeout_s
            self._expiry = loop.call_later(timeout_s, owner.attempt, stream.number, self._expire)
        if method.streams_requests:
            self._start(None)

    @property
    def full(self) -> bool:
        """As in `CallContext`."""
        return self._owner.core.full

    def remaining_ns(self) -> int:
        """As in `CallContext`."""
        if self._expiry is None:
            return 0
        return int((self._deadline_s - self._loop.time()) * 1e9) or -1

    async def read(self) -> bytes | None:
        """As in `CallContext`."""
        while True:
            if self._stopping:
                raise Draining
            if not self._owner.core.full:
                message = self._next()
                if message is not None:
                    return await self._expanded(message)
                if self._stream.ended:
                    if self._reader.held_bytes:
                        raise CallEnded(grpc_status(InvalidRequest(_NO_END)))
                    return None
            self._arrival = self._loop.create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None

    @property
    def waits(self) -> bool:
        """As in `CallContext`."""
        return bool(self._stream.queue)

    async def write(self, data: bytes) -> None:
        """As in `CallContext`."""
        if self._stream.queue:
            await self._drained(len(data))
        self.send(data)

    def send(self, data: bytes) -> None:
        """As in `CallContext`."""
        core, stream = self._owner.core, self._stream
        if stream.gone:
            return
        if not stream.head_sent:
            core.begin(stream, HEAD)
        core.send(stream, framed(data))
        self._owner.flush_soon()

    def keep(self, size: int) -> None:
        """As in `CallContext`."""
        self._owner.core.wait(size)
        self._owner.flush_soon()

    def happened(self) -> None:
        """Look for new messages; called by the connection."""
        stream = self._stream
        pieces, stream.pieces = stream.pieces, []
        self._unreturned += stream.received_bytes - self._received
        self._received = stream.received_bytes
        try:
            if pieces and self._task is not None and not self._method.streams_requests:
                raise NotSupported(_MORE_MESSAGES)
            if not self._looked_into and pieces:
                pieces = self._look_into(pieces)
            if self._message is not None:
                self._receive(self._message, more=bool(pieces))
                return
            for piece in pieces:
                self._reader.feed(piece)
            if self._task is None:
                self._gather()
                if self._method.is_open and self._task is None:
                    self._queue_up()
        except RequestError as error:
            self.fail(error)
            return
        _wake(self._arrival)

    def looked(self) -> None:
        """Look for room to send; called by the connection."""
        if not self._stream.queue:
            for room in self._rooms:
                _wake(room)
        if not self._owner.core.full:
            _wake(self._arrival)

    def tick(self) -> None:
        """Count a second; called by the connection."""
        self._stall.tick(*self._stream.look())
        gathering = self._task is None or (self._arrival is not None and self._reader.held_bytes)
        # Where answers wait, their client is to take some before it may send on.
        phase = Phase.BODY if gathering and not self._owner.core.full else Phase.ANSWER
        if self._clock.is_over(phase, self._stream.received_bytes):
            self.fail(DeadlineExceeded(BODY_TOO_SLOW))

    def stop(self) -> None:
        """Stop reading; called by the connection."""
        self._stopping = True
        _wake(self._arrival)

    def cancel(self) -> None:
        """End the call, as no client waits any more; called by the connection."""
        self._close()
        if self._task is not None:
            self._task.cancel()
        self._owner.let_go(self._stream)

    def fail(self, error: RequestError) -> None:
        """As in `CallContext`."""
        if self._task is not None:
            self._task.cancel()
        if not self._begun:
            self._owner.refused(error, infers=self._method.infers)
        self._end(self._status_of(error))

    async def _drained(self, size: int) -> None:
        """Wait until earlier messages are sent; a message of that size waits for it."""
        core, stream = self._owner.core, self._stream
        core.wait(size)
        try:
            while stream.queue and not stream.gone:
                room = self._loop.create_future()
                self._rooms.append(room)
                try:
                    await room
                finally:
                    self._rooms.remove(room)
        finally:
            core.wait(-size)

    def _next(self) -> bytes | Packed | None:
        """Return the next message; its client may send as much again, or the rest of it."""
        try:
            message = self._reader.next()
        except RequestError as error:
            raise CallEnded(self._status_of(error)) from None
        self._return_all_but(0 if message is None else self._reader.held_bytes)
        return message

    async def _expanded(self, message: bytes | Packed) -> bytes:
        if isinstance(message, bytes):
            return message
        try:
            return await expanded(*message, self._owner.budget)
        except RequestError as error:
            raise CallEnded(self._status_of(error)) from None

    def _status_of(self, error: RequestError) -> GrpcStatus:
        max_bytes = self._method.max_bytes
        if max_bytes is not None and isinstance(error, RequestTooLarge):
            error = RequestTooLarge(f"a message to this method has at most {max_bytes} bytes")
        return grpc_status(error)

    def _return_all_but(self, kept: int) -> None:
        if self._unreturned > kept:
            self._owner.core.taken(self._stream, self._unreturned - kept)
            self._unreturned = kept
            self._owner.flush_soon()

    def _gather(self) -> None:
        """See whether the one message of the call is there; raises `RequestError`."""
        self._return_all_but(0)
        message = self._reader.next()
        if message is None and not self._stream.ended:
            return
        if message is None:
            if not self._reader.held_bytes:
                raise InvalidRequest("the call ended without a message; this method takes one")
            raise InvalidRequest(_NO_END)
        if self._reader.held_bytes:
            raise NotSupported(_MORE_MESSAGES)
        if isinstance(message, bytes):
            self._go_on_with(message)
        else:
            self._task = self._loop.create_task(expanded(*message, self._owner.budget))
            self._task.add_done_callback(self._is_expanded)

    def _is_expanded(self, task: "asyncio.Task[bytes]") -> None:
        self._task = None
        if not task.cancelled():
            self._owner.attempt(self._stream.number, partial(self._take, task))

    def _take(self, task: "asyncio.Task[bytes]") -> None:
        try:
            self._go_on_with(task.result())
        except RequestError as error:
            self.fail(error)

    def _go_on_with(self, data: bytes) -> None:
        """Take the one message of the call."""
        if self._method.infers:
            timeout_ns = self.remaining_ns()
            self._close()
            self._owner.infer(self._stream, data, timeout_ns)
        else:
            self._start(data)

    def _queue_up(self) -> None:
        """Count this call as one without a key that waits for its client.

        If there are too many, end the call that waits longest.
        """
        keyless = self._owner.keyless
        keyless[self._stream] = self
        if len(keyless) > MOST_KEYLESS:
            # By now, an honest client has sent its message and taken its answer.
            keyless.pop(next(iter(keyless))).crowd_out()

    def crowd_out(self) -> None:
        """End this call, because too many wait for their clients, and this one longest."""
        if self._stream.trailers is None:
            text = f"{MOST_KEYLESS} other calls wait for their messages, and this one waits longest"
            self._end(GrpcStatus(RESOURCE_EXHAUSTED, text))
        else:
            self._owner.core.reset(self._stream)
            self._owner.flush_soon()

    def _look_into(self, pieces: list[bytes]) -> list[bytes]:
        """Send the tensor of a message to its slot as it comes, if possible.

        It returns the bytes that are to be gathered, or follow the message.
        """
        if self._reader.held_bytes:
            pieces = [self._reader.take_all(), *pieces]
        begun = pieces[0] if len(pieces[0]) >= _BEGUN_BYTES else b"".join(pieces)
        if len(begun) < _BEGUN_BYTES:
            return pieces
        self._looked_into = True
        message = self._message = self._owner.expect(self._stream, begun)
        if message is None:
            return pieces
        stream, memory = self._stream, message.arrival.memory
        tensor = memoryview(b"".join(pieces))[message.start :]
        here = min(len(tensor), len(memory))
        memory[:here] = tensor[:here]
        stream.sink, stream.sunk_bytes = memory, here
        return [bytes(tensor[here:])] if len(tensor) > here else []

    def _receive(self, message: ArrivingMessage[Any], *, more: bool) -> None:
        """Take bytes of a large message; `more` if others follow it. Raise `RequestError`."""
        stream = self._stream
        if more:
            raise NotSupported(_MORE_MESSAGES)
        self._return_all_but(0)
        if stream.sunk_bytes == len(message.arrival.memory):
            timeout_ns, self._message = self.remaining_ns(), None
            self._close()
            self._owner.arrived(stream, message, timeout_ns)
        elif self._stream.ended:
            raise InvalidRequest(_NO_END)

    def _start(self, data: bytes | None) -> None:
        self._owner.keyless.pop(self._stream, None)
        self._begun = True
        self._task = self._loop.create_task(self._method.serve(data, self))  # type: ignore[arg-type]
        self._task.add_done_callback(self._served)

    def _served(self, task: "asyncio.Task[GrpcStatus | None]") -> None:
        # Each holds the other, and who collects such pairs looks rarely.
        self._task = None
        if not task.cancelled():
            self._end(task.result())

    def _expire(self) -> None:
        self.fail(DeadlineExceeded("the call has lasted as long as its client waits"))

    def _end(self, status: GrpcStatus | None) -> None:
        self._close()
        stream, core = self._stream, self._owner.core
        if stream.gone:
            return
        if stream.head_sent:
            core.end(stream, trailers(status, self.trailing))
        else:
            core.end(stream, trailers_alone(status or GrpcStatus(OK, ""), self.trailing))
        if self._method.is_open and not stream.gone:
            self._queue_up()
        self._owner.let_go(stream)

    def _close(self) -> None:
        self._reader.close()
        self._owner.keyless.pop(self._stream, None)
        # Its memory is another's from here on.
        self._stream.sink = None
        if self._message is not None:
            self._message.arrival.abandon()
            self._message = None
        if self._expiry is not None:
            self._expiry.cancel()


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
