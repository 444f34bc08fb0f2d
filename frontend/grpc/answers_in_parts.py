"""Answers in parts over a stream: of Triton's decoupled models, in Triton's form.

Each part is a response, and all of one request have its id. Requests run at the same time, so that
responses to several stand in any order. Each has the parameter `triton_final_response`. It is true
in the last one, which is an error, or empty. An empty one comes only if the request asks for it,
because a model does not say beforehand which part is its last. To a client that asks for
``Server-Timing``, the last one has that as the parameter `server_timing`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.grpc.answer import infer_response_field
from ringbatch.frontend.grpc.call_context import CallContext
from ringbatch.frontend.grpc.inference import PARTS_END, GrpcAnswer, GrpcRendering, Pending
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.parts_at_once import PartsAtOnce
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.http.parts_timing import PartsTiming
from ringbatch.shm.errors import Overloaded

log = logging.getLogger("ringbatch.frontend")

MOST_UNREAD_BYTES: Final = 4 << 20
"""Bytes of parts of one stream that its client has not taken. Beyond them, or if too much waits on
the connection, a request of which a part waits ends with its next part."""
_TIMING: Final = "server_timing"
_Response: Final = inference("ModelInferResponse")
_StreamResponse: Final = inference("ModelStreamInferResponse")


def _flag(*, final: bool) -> bytes:
    parameter = inference("InferParameter")(bool_param=final)
    response = _Response(parameters={"triton_final_response": parameter})
    return bytes(response.SerializeToString())


_MORE: Final = _flag(final=False)
_FINAL: Final = _flag(final=True)
"""The field of a streamed response that says that no other follows for its request."""


def final_response(pending: Pending, timing: bytes = b"") -> bytes:
    """Return the last message to a request that has ended; empty if there is none.

    Args:
        pending: the request.
        timing: the value of ``Server-Timing``, if the client is to get it.
    """
    answer = pending.outcome
    response, error, _ = answer
    end = pending.id + _FINAL
    if timing:
        parameter = inference("InferParameter")(string_param=timing.decode())
        end += _Response(parameters={_TIMING: parameter}).SerializeToString()
    if error is not None:
        failed = _StreamResponse(error_message=grpc_status(error).text).SerializeToString()
        return bytes(failed) + infer_response_field(end)
    if answer is not PARTS_END:
        return infer_response_field(response + end)
    if not pending.says_end or pending.model is None:
        return b""
    spec = pending.model.spec
    named = _Response(model_name=spec.name, model_version=spec.version).SerializeToString()
    return infer_response_field(named + end)


class _Message(NamedTuple):
    """Message that waits for its client.

    Attributes:
        pending: the request.
        part: of its answer; None if it has ended.
    """

    pending: Pending
    part: bytes | None


class AnswersInParts:
    """Answers in parts of one stream.

    Messages are sent at once, unless others wait for the client to make room. Then a task sends
    all in their order.

    Args:
        call: of the stream.
        record: takes each request once it has ended, or is left.
        give: takes each request once its last message is sent.
        timing: makes that of each request, if the client is to get it.
    """

    def __init__(
        self,
        call: CallContext,
        record: Callable[[Pending], None],
        give: Callable[[Pending], None],
        timing: Callable[[], PartsTiming] | None = None,
    ) -> None:
        self._call = call
        self._record = record
        self._give = give
        self._timing = timing
        self._timings: dict[Pending, PartsTiming] = {}
        self._running: set[Pending] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._messages: deque[_Message] = deque()
        self._waiting: dict[Pending, int] = {}
        """Parts that wait, by their request."""
        self._unread_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        """Sends the messages that wait; None while none do."""

    def add(self, pending: Pending) -> None:
        """Answer a request that has begun."""
        self._running.add(pending)
        self._all_ended.clear()
        pending.ended.add_done_callback(partial(self._end, pending))

    def direct(
        self, pending: Pending, rendering: Rendering[GrpcAnswer], rows: int, batch_id: str
    ) -> PartsAtOnce | None:
        """Return the way of a request's parts that need not come to `take`, as in `InParts`."""
        if self._timing is not None or not isinstance(rendering, GrpcRendering):
            return None
        call = self._call
        return PartsAtOnce(call.outlet, call.sheets, pending, rendering, rows, batch_id, _MORE)

    def take(self, pending: Pending, answer: GrpcAnswer) -> None:
        """Take a part; called by the service, which ends the request with the error raised."""
        data = infer_response_field(answer.response + _MORE)
        if not self._has_to_wait():
            self._call.send(data)
            return
        too_much = self._unread_bytes > MOST_UNREAD_BYTES or self._call.full
        if too_much and pending in self._waiting:
            raise Overloaded(f"the client has not read {self._unread_bytes} bytes of the answer")
        self._waiting[pending] = self._waiting.get(pending, 0) + 1
        self._unread_bytes += len(data)
        self._call.keep(len(data))
        self._put(_Message(pending, data))

    def take_timed(self, pending: Pending, answer: GrpcAnswer) -> None:
        """Do as `take`, for a client that gets the timing of each answer."""
        self._timing_of(pending).note()
        self.take(pending, answer)

    async def finish(self) -> None:
        """Wait until all are answered; no other comes."""
        await self._all_ended.wait()

    def close(self) -> None:
        """Leave what is not answered."""
        if self._writing is not None:
            self._writing.cancel()
        left, self._running = self._running, set()
        for pending in left:
            self._record(pending)
        self._call.keep(-self._unread_bytes)
        self._unread_bytes = 0
        self._messages.clear()

    def _has_to_wait(self) -> bool:
        """Return whether the next message has to wait for those before it."""
        return self._writing is not None or self._call.waits

    def _end(self, pending: Pending, _ended: "asyncio.Future[None]") -> None:
        """Send the last message to a request, unless the call is over."""
        if pending not in self._running:
            return
        if self._has_to_wait():
            self._put(_Message(pending, None))
            return
        try:
            if data := self._last_message(pending):
                self._call.send(data)
            self._forget(pending)
        except Exception:
            self._fail()

    def _put(self, message: _Message) -> None:
        self._messages.append(message)
        if self._writing is None:
            self._call.outlet.held = True
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._messages:
                pending, part = self._messages.popleft()
                if part is None:
                    if data := self._last_message(pending):
                        await self._call.write(data)
                    self._forget(pending)
                else:
                    self._leave(pending, len(part))
                    await self._call.write(part)
            self._writing = None
            self._call.outlet.held = False
        except Exception:
            self._fail()

    def _fail(self) -> None:
        """End the call: else it would wait for its client, and the client for an answer."""
        log.exception("grpc frontend: a stream's answer in parts failed")
        self._call.fail(InternalError())

    def _last_message(self, pending: Pending) -> bytes:
        """Record a request that has ended; return its last message, which may be empty."""
        self._record(pending)
        timing = b""
        if self._timing is not None and pending.ending is not None:
            timing = self._timing_of(pending).value(pending.ending)
            del self._timings[pending]
        return final_response(pending, timing)

    def _forget(self, pending: Pending) -> None:
        """Stop running a request whose last message is sent."""
        self._running.discard(pending)
        if not self._running:
            self._all_ended.set()
        self._give(pending)

    def _timing_of(self, pending: Pending) -> PartsTiming:
        assert self._timing is not None, "its client asks for it"
        found = self._timings.get(pending)
        if found is None:
            found = self._timings[pending] = self._timing()
        return found

    def _leave(self, pending: Pending, size: int) -> None:
        """Stop counting a part that is to be written at once."""
        self._unread_bytes -= size
        self._call.keep(-size)
        self._waiting[pending] -= 1
        if not self._waiting[pending]:
            del self._waiting[pending]
