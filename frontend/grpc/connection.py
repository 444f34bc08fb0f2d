"""One connection of gRPC: calls from the socket to the ring with nothing in between.

HTTP/2 is `ringbatch.frontend.http2`'s. A ModelInfer whose message came in one piece goes to the
pipeline at once, and its answer from there to the socket, with no task or future; other calls are
`ServedCall`s. What answers come in one turn of the event loop is written at once.

There are no timers here but those of calls. `tick` is called once a second for every connection.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.outcome import Headers
from ringbatch.frontend.grpc.answer_blocks import (
    HEAD,
    Metadata,
    trailers,
    trailers_alone,
    usual_trailers,
)
from ringbatch.frontend.grpc.call_head import CallHead, CallHeads
from ringbatch.frontend.grpc.calls import Method, ServedCall
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.message_reader import PREFIX, PREFIX_BYTES
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.grpc.watch import WatchedCall
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.watch import client_of
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import NO_ERROR
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.request.calls import Call
from ringbatch.frontend.streams.connection_clocks import ConnectionClocks, Due
from ringbatch.shm.errors import RequestError, Unauthenticated

LEAVE_S: Final = 1.0
"""How long a client may take to say that it begins no further call."""


@dataclass(slots=True)
class GrpcSettings:
    """What all connections of a process share.

    Attributes:
        inference: what answers requests.
        heads: reads the heads of calls.
        recorder: sees to what is said of requests beside their answers.
        budget: for what has come and is no message yet.
        max_request_bytes: longer messages are refused.
        idle_timeout_s: how long a connection without a call is kept.
        age_s: draws after how long a client is asked to connect anew.
        stopping: whether the server is; connections may still come that were accepted before.
        connections: those that there are.
    """

    inference: Inference
    heads: CallHeads
    recorder: Recorder
    budget: BodyBudget
    max_request_bytes: int
    idle_timeout_s: float
    age_s: Callable[[], float]
    stopping: Callable[[], bool]
    connections: "set[GrpcConnection]"


class InferCall(Framing):
    """A ModelInfer on its way.

    Attributes:
        stream: on which it came.
        bytes_in: of its message.
        call: on which the answer depends; None where it has ended.

    Args:
        owner: its connection.
        stream, bytes_in: as above.
    """

    __slots__ = ("_owner", "bytes_in", "call", "stream")

    def __init__(self, owner: "GrpcConnection", stream: Stream[CallHead], bytes_in: int) -> None:
        super().__init__(stream.head.fields)
        self._owner = owner
        self.stream = stream
        self.bytes_in = bytes_in
        self.call: Call | None = None

    def reply(self, answer: GrpcAnswer) -> None:
        """The answer is there."""
        self.call = None
        self._owner.inferred(self, answer)


class GrpcConnection(asyncio.Protocol):
    """See the module.

    Args:
        settings: shared by all connections.
        loop: on which it is.
    """

    __slots__ = (
        "_clocks",
        "_draws",
        "_endings",
        "_flushing",
        "_heads",
        "_inferring",
        "_is_told",
        "_loop",
        "_make_id",
        "_recorder",
        "_serving",
        "_settings",
        "_start",
        "_transport",
        "budget",
        "client",
        "core",
        "max_request_bytes",
    )

    _transport: asyncio.Transport

    def __init__(self, settings: GrpcSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._heads = settings.heads
        self._start = settings.inference.start
        recorder = self._recorder = settings.recorder
        self._endings = recorder.endings
        self._draws = recorder.draws
        self._is_told = recorder.tells
        self._make_id = recorder.ids.make
        self.budget = settings.budget
        self.max_request_bytes = settings.max_request_bytes
        self.client = ""
        self.core: Connection[CallHead] = Connection(settings.heads.read)
        self._clocks = ConnectionClocks(settings.idle_timeout_s, settings.age_s())
        self._inferring: dict[int, InferCall] = {}
        self._serving: dict[int, ServedCall] = {}
        self._flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport's call: the connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self.client = client_of(transport)
        self._settings.connections.add(self)
        if self._settings.stopping():
            self.leave()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport's call: the connection is closed, by whomever."""
        self._settings.connections.discard(self)
        for stream in self.core.give_up(NO_ERROR, ""):
            self._look_at(stream)
        self.core.take_output()

    def data_received(self, data: bytes) -> None:
        """The transport's call: bytes have come."""
        core = self.core
        for stream in core.receive(data):
            self._look_at(stream)
        if self._serving:
            self._look_for_room()
        if core.has_output or core.over:
            self._flush()

    def eof_received(self) -> None:
        """The transport's call: nothing more comes, and so nobody is there."""

    def pause_writing(self) -> None:
        """The transport's call: the client does not read its answers."""
        self.core.writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The transport's call: the client reads again."""
        self.core.writable = True
        self.core.go_on()
        self._look_for_room()
        self._transport.resume_reading()
        self._flush()

    def tick(self) -> None:
        """The server's call: another second has passed."""
        core = self.core
        core.tick()
        for call in list(self._serving.values()):
            call.tick()
        due = self._clocks.tick(
            core,
            calls=len(self._inferring) + len(self._serving),
            unsent_bytes=0 if core.writable else self._transport.get_write_buffer_size(),
        )
        if due is Due.ABORT:
            self._transport.abort()
            return
        if due is Due.PROBE:
            core.probe()
        elif due is Due.LEAVE:
            self.leave()
        elif due is Due.CLOSE:
            core.close()
        self._flush()

    def leave(self) -> None:
        """The server's call: the client is asked to begin no further call."""
        self.core.leave()
        self._loop.call_later(LEAVE_S, self._close)
        self._flush()

    def stop(self) -> None:
        """The server's call: no call goes on that only waits for its client."""
        for call in list(self._serving.values()):
            call.stop()
        self.leave()

    def abort(self) -> None:
        """The server's call: nobody waits any longer."""
        self._transport.abort()

    def forget(self) -> None:
        """The server's call: what was made of heads may not hold any more."""
        self.core.headers.forget()

    def infer(self, stream: Stream[CallHead], data: bytes, timeout_ns: int) -> None:
        """A `ServedCall`'s: the message of a ModelInfer is there."""
        self._serving.pop(stream.number, None)
        self._infer(stream, data, timeout_ns)

    def refused(self, error: RequestError) -> None:
        """A `ServedCall`'s: it has ended before it came to what serves it."""
        self._settings.inference.ended_outside(error)

    def let_go(self, stream: Stream[CallHead]) -> None:
        """A `ServedCall`'s: it has ended."""
        self._serving.pop(stream.number, None)
        self.flush_soon()

    def flush_soon(self) -> None:
        """There may be something to send, with whatever else comes in this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def inferred(self, call: InferCall, answer: GrpcAnswer) -> None:
        """An `InferCall`'s: its answer is there."""
        stream = call.stream
        head, number = stream.head, stream.number
        self._inferring.pop(number, None)
        response, error, trailing = answer
        drawn = 0 if self._draws is None else self._draws(head.trace)
        told = self._is_told or head.asks or head.load
        if error is not None or drawn or self._endings.notable or told:
            self._answer_unusually(call, response, error, trailing, drawn)
        else:
            size = len(response)
            body = PREFIX.pack(0, size) + response
            self.core.answer(stream, HEAD, body, usual_trailers(head.request_id or self._make_id()))
        self.flush_soon()

    def _answer_unusually(
        self,
        call: InferCall,
        response: bytes,
        error: RequestError | None,
        trailing: Headers,
        drawn: int,
    ) -> None:
        stream = call.stream
        metadata = (*trailing, *self._told(call, len(response), drawn))
        if error is not None:
            self.core.end(stream, trailers_alone(grpc_status(error), metadata))
        else:
            body = PREFIX.pack(0, len(response)) + response
            self.core.answer(stream, HEAD, body, trailers(None, metadata))

    def _told(self, call: InferCall, bytes_out: int, drawn: int | None) -> Metadata:
        watched = WatchedCall(call.stream.head, self.client, self._recorder)
        ending = self._settings.inference.last_ending()
        asked_for = call.asked_for
        return watched.ended(ending, call.bytes_in, bytes_out, asked_for=asked_for, drawn=drawn)

    def _look_at(self, stream: Stream[CallHead]) -> None:
        """Something has happened on a stream."""
        number = stream.number
        served = self._serving.get(number)
        if stream.gone:
            if served is not None:
                del self._serving[number]
                served.cancel()
            else:
                self._abandon(number)
        elif served is not None:
            served.happened()
        elif number in self._inferring:
            # Its message is there.
            stream.pieces.clear()
        else:
            self._begin(stream)

    def _begin(self, stream: Stream[CallHead]) -> None:
        head = stream.head
        method: Method | None = head.method
        if method is None or head.refusal is not None:
            self._refuse(stream)
            return
        pieces = stream.pieces
        if method.infers and len(pieces) == 1:
            data = pieces[0]
            size = len(data) - PREFIX_BYTES
            if size >= 0 and PREFIX.unpack_from(data) == (0, size):
                pieces.clear()
                if size <= self.max_request_bytes:
                    self._infer(stream, data[PREFIX_BYTES:], head.timeout_ns)
                    return
                pieces.append(data)
        served = ServedCall(self, stream, method, self._loop)
        self._serving[stream.number] = served
        served.happened()

    def _infer(self, stream: Stream[CallHead], data: bytes, timeout_ns: int) -> None:
        call = InferCall(self, stream, len(data))
        self._inferring[stream.number] = call
        call.call = self._start(data, timeout_ns, call, call.reply)

    def _refuse(self, stream: Stream[CallHead]) -> None:
        head = stream.head
        assert head.refusal is not None, "otherwise it would be served"
        if head.denied:
            self._settings.inference.ended_outside(Unauthenticated())
        self.core.end(stream, trailers_alone(head.refusal, (), head.http_status))

    def _abandon(self, number: int) -> None:
        call = self._inferring.pop(number, None)
        if call is not None and call.call is not None:
            call.call.abandon()
            call.call = None
            self._told(call, 0, None)

    def _look_for_room(self) -> None:
        for call in list(self._serving.values()):
            call.looked()

    def _close(self) -> None:
        self.core.close()
        self._flush()

    def _flush(self) -> None:
        """Send what there is to be sent; close what is at its end."""
        self._flushing = False
        core = self.core
        if core.has_output:
            large = core.large
            out = core.take_output()
            if large:
                self._transport.writelines(out)
            else:
                self._transport.write(b"".join(out))
        if core.over or (core.closing and not core.streams):
            self._transport.close()
