"""Connections of gRPC with a payload log: drawn requests are kept until they are answered."""

import asyncio

from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.connection import GrpcConnection, GrpcSettings, InferCall
from ringbatch.frontend.grpc.inference import GrpcAnswer
from ringbatch.frontend.grpc.kept_messages import answered, kept_call
from ringbatch.frontend.grpc.large_messages import ArrivingMessage
from ringbatch.frontend.http2.stream import Stream
from ringbatch.frontend.payloads.recorder import Kept, PayloadRecorder


class KeptConnection(GrpcConnection):
    """gRPC connection with a payload log: keeps drawn requests until they are answered.

    Args:
        payloads: takes drawn requests.
        settings, loop: as for `GrpcConnection`.
    """

    __slots__ = ("_drawn", "_kept", "_payloads")

    def __init__(
        self,
        payloads: PayloadRecorder,
        settings: GrpcSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(settings, loop)
        self._payloads = payloads
        self._drawn: set[int] = set()
        self._kept: dict[int, Kept] = {}

    def expect(self, stream: Stream[CallHead], begun: bytes) -> ArrivingMessage[InferCall] | None:
        """As `GrpcConnection`; the message of a drawn request is gathered."""
        if self._payloads.draws():
            self._drawn.add(stream.number)
            return None
        return super().expect(stream, begun)

    def inferred(self, call: InferCall, answer: GrpcAnswer) -> None:
        """As `GrpcConnection`."""
        stream = call.stream
        kept = self._kept.pop(stream.number, None)
        if kept is None:
            super().inferred(call, answer)
            return
        request_id = stream.head.request_id or self._make_id()
        # Its client gets the id that the log has.
        stream.head = stream.head._replace(request_id=request_id)
        ending = self._settings.inference.last_ending()
        super().inferred(call, answer)
        self._payloads.ended(kept, ending, request_id, answered(answer))

    def _infer(self, stream: Stream[CallHead], data: bytes, timeout_ns: int) -> None:
        number = stream.number
        if number in self._drawn or self._payloads.draws():
            self._drawn.discard(number)
            self._kept[number] = kept_call(self._payloads, stream.head, data)
        super()._infer(stream, data, timeout_ns)

    def _abandon(self, stream: Stream[CallHead]) -> None:
        self._drawn.discard(stream.number)
        kept = self._kept.pop(stream.number, None)
        super()._abandon(stream)
        if kept is not None:
            ending = self._settings.inference.last_ending()
            request_id = stream.head.request_id or self._make_id()
            self._payloads.ended(kept, ending, request_id, answered(None))
