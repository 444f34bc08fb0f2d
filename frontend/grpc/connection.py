"""Connection of gRPC: calls go from the socket to the ring with nothing in between.

Its bytes and its clocks are those of every connection over HTTP/2. A ModelInfer whose message came
in one piece goes to the pipeline at once. Its answer goes from there to the socket, with no task or
future. Other calls are `ServedCall`s. All answers of one turn of the event loop are written at
once.

There are no timers here but those of calls. `tick` is called once a second for every connection.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.outcome import Headers
from ringbatch.frontend.grpc.answer_blocks import (
    HEAD,
    Metadata,
    trailers,
    trailers_alone,
    usual_trailers,
)
from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.grpc.call_head import CallHead, CallHeadReader
from ringbatch.frontend.grpc.call_tracking import TrackedCall
from ringbatch.frontend.grpc.calls import ServedCall
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.large_messages import ArrivingMessage, tensor_span
from ringbatch.frontend.grpc.message_reader import PREFIX, PREFIX_BYTES
from ringbatch.frontend.grpc.part_sheet import PartSheets
from ringbatch.frontend.grpc.reading_in_place import ReadingInPlace
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.receiver import read_with
from ringbatch.frontend.http.request_tracking import client_of
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.security.accounts import UNKNOWN_PEER
from ringbatch.frontend.streams.connection_clocks import ConnectionClocks
from ringbatch.frontend.streams.served_connection import ServedConnection
from ringbatch.shm.errors import RequestError, Unauthenticated


@dataclass(slots=True)
class GrpcSettings:
    """Settings that all connections of a process share.

    Attributes:
        inference: the service that answers requests.
        heads: reads the heads of calls.
        recorder: keeps ids, times and log lines of requests.
        budget: for received bytes that are no whole message yet.
        max_request_bytes: longer messages are refused.
        idle_timeout_s: how long a connection without a call is kept.
        age_s: draws the age at which a client is asked to connect anew.
        stopping: True while the server stops; connections may still come that were accepted before.
        connections: the open ones.
        incoming: buffer that connections with large messages are read into.
        keyless: calls without a key that wait for their clients, as in
            `ringbatch.frontend.grpc.calls`.
    """

    inference: Inference
    heads: CallHeadReader
    recorder: Recorder
    budget: BodyBudget
    max_request_bytes: int
    idle_timeout_s: float
    age_s: Callable[[], float]
    stopping: Callable[[], bool]
    connections: "set[GrpcConnection]"
    incoming: bytearray
    keyless: dict[Stream[CallHead], ServedCall]


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
        super().__init__(stream.head.fields, owner.account_of(stream.head))
        self._owner = owner
        self.stream = stream
        self.bytes_in = bytes_in
        self.call: RequestHandle | None = None

    def reply(self, answer: GrpcAnswer) -> None:
        """Take the answer."""
        self.call = None
        try:
            self._owner.inferred(self, answer)
        except Exception:
            # The error would reach the call that collects answers, which may be another client's.
            self._owner.failed(self.stream.number)


class GrpcConnection(ServedConnection[CallHead, ServedCall]):
    """gRPC connection, with the fast way for whole ModelInfer messages; see the module.

    Args:
        settings: shared by all connections.
        loop: on which it is.
    """

    __slots__ = (
        "_heads",
        "_in_place",
        "_inferring",
        "_make_id",
        "_outcomes",
        "_peer",
        "_recorder",
        "_samples",
        "_sends_metadata",
        "_settings",
        "_start",
        "budget",
        "client",
        "keyless",
        "max_request_bytes",
        "sheets",
    )

    def __init__(self, settings: GrpcSettings, loop: asyncio.AbstractEventLoop) -> None:
        clocks = ConnectionClocks(settings.idle_timeout_s, settings.age_s())
        heads = settings.heads
        super().__init__(Connection(heads.read, varying=heads.varying), clocks, loop)
        self._settings = settings
        self._heads = settings.heads
        self._start = settings.inference.start
        recorder = self._recorder = settings.recorder
        self._outcomes = recorder.outcomes
        self._samples = recorder.samples
        self._sends_metadata = recorder.metadata.anything
        self._make_id = recorder.ids.make
        self.budget = settings.budget
        self.max_request_bytes = settings.max_request_bytes
        self.keyless = settings.keyless
        self.sheets = PartSheets(self.core, self.flush_soon)
        self.client = ""
        self._peer = UNKNOWN_PEER
        self._in_place = False
        self._inferring: dict[int, InferCall] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection; called by the transport."""
        self._transport = transport  # type: ignore[assignment]
        self.client = client_of(transport)
        self._peer = self._heads.peer(transport.get_extra_info("peername"))
        self._settings.connections.add(self)
        if self._settings.stopping():
            self.leave()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a closed connection; called by the transport."""
        self._settings.connections.discard(self)
        super().connection_lost(exc)
        self.sheets.clear()
        # A call does not notice that its client has taken its answer.
        own = [stream for stream, call in self.keyless.items() if call.connection is self]
        for stream in own:
            del self.keyless[stream]

    def stop(self) -> None:
        """End the calls that only wait for their client; called by the server."""
        for call in list(self._serving.values()):
            call.stop()
        self.leave()

    def abort(self) -> None:
        """Cancel everything; called by the server."""
        self._transport.abort()

    def forget(self) -> None:
        """Forget the results of heads, which may have changed; called by the server."""
        self.core.headers.forget()

    def account_of(self, head: CallHead) -> int:
        """Return the account word of a call on this connection."""
        return self._heads.account(head, self._peer)

    def infer(self, stream: Stream[CallHead], data: bytes, timeout_ns: int) -> None:
        """Take the message of a ModelInfer; called by a `ServedCall`."""
        self._serving.pop(stream.number, None)
        self._infer(stream, data, timeout_ns)

    def expect(self, stream: Stream[CallHead], begun: bytes) -> ArrivingMessage[InferCall] | None:
        """Take the begin of a ModelInfer (called by a `ServedCall`); None to gather it."""
        compressed, size = PREFIX.unpack_from(begun)
        if compressed or size > self.max_request_bytes:
            return None
        span = tensor_span(memoryview(begun)[PREFIX_BYTES:], size)
        if span is None:
            return None
        call = InferCall(self, stream, size)
        fields = begun[PREFIX_BYTES : PREFIX_BYTES + span.start]
        arrival = self._settings.inference.prepare(fields, span.head_bytes, span.size, call)
        if arrival is None:
            return None
        if not self._in_place:
            self._in_place = True
            read_with(self._transport, ReadingInPlace(self, self._settings.incoming))
        return ArrivingMessage(arrival, call, PREFIX_BYTES + span.start)

    def arrived(
        self, stream: Stream[CallHead], message: ArrivingMessage[InferCall], timeout_ns: int
    ) -> None:
        """Take a ModelInfer that is complete in its slot; called by a `ServedCall`."""
        self._serving.pop(stream.number, None)
        call, arrival = message.call, message.arrival
        self._inferring[stream.number] = call
        arrival.timeout_ns = timeout_ns
        call.call = arrival.arrived(call.reply)

    def refused(self, error: RequestError, *, infers: bool) -> None:
        """Record a call that has ended before its handler; called by a `ServedCall`."""
        self._settings.inference.record_outside(error, infers=infers)

    def inferred(self, call: InferCall, answer: GrpcAnswer) -> None:
        """Send an answer; called by an `InferCall`."""
        stream = call.stream
        head, number = stream.head, stream.number
        self._inferring.pop(number, None)
        response, error, trailing = answer
        drawn = 0 if self._samples is None else self._samples.of(head.trace)
        wants_metadata = self._sends_metadata or head.asks or head.load
        if error is not None or drawn or self._outcomes.must_log or wants_metadata:
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
        metadata = (*trailing, *self._response_metadata(call, len(response), drawn))
        if error is not None:
            self.core.end(stream, trailers_alone(grpc_status(error), metadata))
        else:
            body = PREFIX.pack(0, len(response)) + response
            self.core.answer(stream, HEAD, body, trailers(None, metadata))

    def _response_metadata(self, call: InferCall, bytes_out: int, drawn: int | None) -> Metadata:
        watched = TrackedCall(call.stream.head, self.client, self._recorder)
        ending = self._settings.inference.last_ending()
        asked_for = call.asked_for
        return watched.ended(ending, call.bytes_in, bytes_out, asked_for=asked_for, drawn=drawn)

    def _begin(self, stream: Stream[CallHead]) -> None:
        head = stream.head
        method: MethodHandler | None = head.method
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
            self._settings.inference.record_outside(Unauthenticated(), infers=True)
        self.core.end(stream, trailers_alone(head.refusal, (), head.http_status))

    def _abandon(self, stream: Stream[CallHead]) -> None:
        call = self._inferring.pop(stream.number, None)
        if call is not None and call.call is not None:
            call.call.abandon()
            call.call = None
            self._response_metadata(call, 0, None)

    def _under_way(self) -> int:
        return len(self._inferring) + len(self._serving)
