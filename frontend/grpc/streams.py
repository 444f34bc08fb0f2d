"""ModelStreamInfer: the requests of one call, answered in their order, or in parts as they come."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, Protocol

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.part_limits import PartLimits, limits_in
from ringbatch.frontend.grpc.answers_in_parts import AnswersInParts, final_response
from ringbatch.frontend.grpc.call_context import CallContext, CallEnded
from ringbatch.frontend.grpc.call_tracking import TrackedCall
from ringbatch.frontend.grpc.inference import PARTS_END, Inference, Pending
from ringbatch.frontend.grpc.kept_messages import answered, kept_call
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.http.parts_timing import PartsTiming
from ringbatch.frontend.payloads.recorder import PayloadRecorder
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.errors import Draining, InvalidRequest, Unauthenticated

log = logging.getLogger("ringbatch.frontend")

WINDOW: Final = 64
"""The most requests of one stream that are on their way at once; fewer if they fill half of the
lane. The stream reads the next request when the oldest is answered. Until then, HTTP/2 makes the
client wait."""


class Keys(Protocol):
    """Interface of the keys that clients need.

    Attributes:
        changes: how often they have changed.
    """

    @property
    def changes(self) -> int:
        """See the class."""

    def allow(self, authorization: str | None, key: str | None) -> bool:
        """Return whether a client with these credentials may be served now."""


class Streams:
    """ModelStreamInfer.

    Args:
        inference: what answers requests.
        heads: who may still be served.
        recorder: of the process.
        payloads: takes drawn requests; None if there is no payload log.
    """

    def __init__(
        self,
        inference: Inference,
        heads: Keys,
        recorder: Recorder,
        payloads: PayloadRecorder | None = None,
    ) -> None:
        self._payloads = payloads
        self._inference = inference
        self._heads = heads
        self._recorder = recorder
        self._future = asyncio.get_running_loop().create_future

    async def serve(self, call: CallContext) -> None:
        """Answer each request as if it came alone.

        They are answered in their order. Those to models that answer in parts stand outside it, so
        that no other waits for their last part.
        """
        pending: asyncio.Queue[Pending | None] = asyncio.Queue()
        limits = _limits_of(call)
        watched = TrackedCall(call.head, call.client, self._recorder)
        call.trailing = watched.id_metadata
        payloads, inference = self._payloads, self._inference
        room = _Room(*inference.lane_holds)
        answering = asyncio.create_task(_answer(call, pending, room, watched, payloads))
        is_timed = call.head.asks or self._recorder.metadata.server_timing
        parts = AnswersInParts(
            call,
            lambda ended: _record_end(watched, ended, payloads),
            room.give,
            partial(PartsTiming, self._recorder, 0) if is_timed else None,
        )
        take = parts.take_timed if is_timed else parts.take
        draining: Draining | None = None
        try:
            try:
                async for data in still_allowed(call, self._heads):
                    left_ns = call.remaining_ns()
                    last, fields, account = inference.last_ending, call.head.fields, call.account
                    begun = Pending(
                        self._future(), last, call.keep, take, len(data), fields, account
                    )
                    in_parts = InParts(
                        begun.take_part,
                        PARTS_END,
                        limits=limits,
                        stalled_s=call.stalled_s,
                        direct=partial(parts.direct, begun),
                    )
                    inference.begin(data, left_ns, begun, in_parts)
                    if payloads is not None and payloads.draws():
                        begun.kept = kept_call(payloads, call.head, data)
                    if begun.in_parts:
                        parts.add(begun)
                    else:
                        pending.put_nowait(begun)
                    await room.take(begun)
            except Draining as error:
                draining = error
            pending.put_nowait(None)
            await answering
            await parts.finish()
        finally:
            answering.cancel()
            parts.close()
            call.trailing = watched.last_metadata
            while not pending.empty():
                if (left := pending.get_nowait()) is not None:
                    _record_end(watched, left, payloads)
        if draining is not None:
            watched.ended(inference.record_outside(draining, infers=True), 0, 0)
            raise CallEnded(grpc_status(draining))


async def _answer(
    call: CallContext,
    pending: "asyncio.Queue[Pending | None]",
    room: "_Room",
    watched: TrackedCall,
    payloads: PayloadRecorder | None,
) -> None:
    try:
        while (first := await pending.get()) is not None:
            try:
                await first.ended
            finally:
                _record_end(watched, first, payloads)
            await call.write(final_response(first))
            room.give(first)
    except Exception:
        # Else the call would wait for its client, and the client for an answer.
        log.exception("grpc frontend: a stream's answer failed")
        call.fail(InternalError())


class _Room:
    """Room in the lane for the requests of one stream: half of the share of one model.

    So another such stream fits too. If its own requests fill that half, the stream waits and is not
    refused.

    Args:
        slots, size: slots and bytes that one model may have.
    """

    def __init__(self, slots: int, size: int) -> None:
        self._left = WINDOW
        self._left_slots = slots >> 1
        self._left_bytes = size >> 1
        self._news = asyncio.Event()

    async def take(self, begun: Pending) -> None:
        """Count a request that has begun; return once another may begin."""
        slots, size = begun.holds
        self._count(-1, -slots, -size)
        while self._left <= 0 or self._left_slots < 0 or self._left_bytes < 0:
            self._news.clear()
            await self._news.wait()

    def give(self, answered: Pending) -> None:
        """Stop counting a request that is answered."""
        slots, size = answered.holds
        self._count(1, slots, size)
        self._news.set()

    def _count(self, requests: int, slots: int, size: int) -> None:
        self._left += requests
        self._left_slots += slots
        self._left_bytes += size


def _limits_of(call: CallContext) -> PartLimits:
    """Return the limits that a call asks for.

    Raises:
        CallEnded: they cannot be read.
    """
    sent = {name: value.decode("latin-1") for name, value in call.head.fields}
    try:
        return limits_in(lambda name: sent.get(name.encode()))
    except InvalidRequest as error:
        raise CallEnded(grpc_status(error)) from None


def _record_end(watched: TrackedCall, pending: Pending, payloads: PayloadRecorder | None) -> None:
    """Record the end of a request, or that no client waits for its answer."""
    pending.leave()
    ending = pending.ending
    assert ending is not None, "it has ended now"
    watched.ended(ending, pending.bytes_in, pending.bytes_out, asked_for=pending.asked_for)
    if payloads is not None and pending.kept is not None:
        payloads.ended(pending.kept, ending, watched.request_id, answered(pending.answer))


async def still_allowed(call: CallContext, keys: Keys) -> AsyncIterator[bytes]:
    """Yield the messages of a call, which may outlive the key that it began with."""
    changes = keys.changes
    while (data := await call.read()) is not None:
        if changes != keys.changes:
            if not keys.allow(call.head.authorization, call.head.key):
                raise CallEnded(grpc_status(Unauthenticated()))
            changes = keys.changes
        yield data
