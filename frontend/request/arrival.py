"""A large request whose bytes the kernel writes straight into its slot.

Once the head of a request and the JSON text of its body are there, everything is known but the
values of its tensor: how many rows it has, where in the slot the tensor will lie, and what the
answer is to be. So the slot is claimed then, and the rest of the body received into it, with no
copy in between. Whatever is not that simple is gathered in the process and goes the usual way.
"""

from collections.abc import Callable
from typing import Final

from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.request_timeout import shortest_ns
from ringbatch.frontend.request.calls import (
    Call,
    Engine,
    InferTask,
    Reply,
    ServedModel,
    Task,
    reply_error,
)
from ringbatch.frontend.v2.request import Outline
from ringbatch.shm.errors import ModelFailed, RequestError
from ringbatch.shm.layout import aligned

LARGE_BYTES: Final = 1 << 16
"""A smaller tensor has mostly come with its head, and costs next to nothing to copy."""
_SHARE: Final = 2
"""Of the lane's memory, one part in so many may wait for bytes that senders still owe."""


class Arrivals:
    """The slots of one process that wait for their bytes.

    Args:
        engine: of this process.
        clock: monotonic nanoseconds.
        expect_served: raises `ModelNotReady` for a model that no worker ever held.
        expect_time: raises `Overloaded` where the answer would come too late.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], int],
        expect_served: Callable[[ServedModel], None],
        expect_time: Callable[[Task], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._expect_served = expect_served
        self._expect_time = expect_time
        self._limit_bytes = engine.lane_bytes // _SHARE
        self._owed_bytes = 0

    def prepare(
        self, model: ServedModel, text: bytes, binary_bytes: int, timeout_ns: int
    ) -> "Arrival | None":
        """Claim a slot for a request of which only the tensor is to come.

        Args:
            model: for which it is.
            text: the JSON text of its body.
            binary_bytes: how many bytes are to follow.
            timeout_ns: how long the client waits; 0 where it does not say.

        Returns:
            None where it is to go the usual way, be it because something is wrong with it.
        """
        if binary_bytes < LARGE_BYTES or not model.sized:
            return None
        outline = model.v2.outline(text, binary_bytes)
        if outline is None:
            return None
        result_bytes = model.result_bytes(outline.rows, binary_bytes)
        size = aligned(binary_bytes) + result_bytes
        if self._owed_bytes + size > self._limit_bytes:
            return None
        slot = self._engine.lane.claim(binary_bytes, result_bytes)
        if slot is None:
            return None
        self._owed_bytes += size
        limit_ns = shortest_ns(model.spec.timeout_ns, timeout_ns, outline.requested.timeout_ns)
        return Arrival(self, model, outline, slot, size, limit_ns)

    def take(self, arrival: "Arrival", reply: Reply) -> Call | None:
        """Send a request on its way that has come in full; as `Service.infer`."""
        model, outline = arrival.model, arrival.outline
        accepted_ns = self._clock()
        self._owed_bytes -= arrival.size
        deadline_ns = accepted_ns + arrival.limit_ns
        call = Arrived(model, outline.requested, reply, accepted_ns, deadline_ns)
        try:
            self._expect_served(model)
            self._expect_time(call)
        except RequestError as error:
            self._engine.lane.abort(arrival.slot)
            reply_error(reply, error, kserve_errors=False)
            return None
        call.send_in(self._engine, arrival.slot, Part(outline.rows, arrival.memory, 0))
        return call

    def drop(self, arrival: "Arrival") -> None:
        """Give back the slot of a request that will not come."""
        self._owed_bytes -= arrival.size
        self._engine.lane.abort(arrival.slot)

    def memory(self, slot: int, size: int) -> memoryview:
        """Where the bytes belong."""
        lane = self._engine.lane
        start = lane.request_offset[slot]
        return lane.memory[start : start + size]


class Arrival:
    """One such request. It ends with one call, of `arrived` or of `abandon`.

    Attributes:
        memory: for the bytes to come, of exactly their length.
    """

    __slots__ = ("_arrivals", "limit_ns", "memory", "model", "outline", "size", "slot")

    def __init__(
        self,
        arrivals: Arrivals,
        model: ServedModel,
        outline: Outline,
        slot: int,
        size: int,
        limit_ns: int,
    ) -> None:
        self._arrivals = arrivals
        self.model = model
        self.outline = outline
        self.slot = slot
        self.size = size
        self.limit_ns = limit_ns
        self.memory = arrivals.memory(slot, outline.binary_bytes)

    def arrived(self, reply: Reply) -> Call | None:
        """Send it on its way; as `Service.infer`."""
        return self._arrivals.take(self, reply)

    def abandon(self) -> None:
        """Its bytes will not come."""
        self._arrivals.drop(self)


class Arrived(InferTask):
    """A request whose payload stands in its slot and nowhere else; its answer has a known size."""

    __slots__ = ()

    def send_in(self, engine: Engine, slot: int, part: Part) -> None:
        """Send it on its way in the slot where it is."""
        self._engine = engine
        self._part = part
        self._result_bytes = 0
        self._slot = slot
        rows, payload, key_bytes = part
        engine.lane.publish(
            slot,
            self.model.reference,
            rows,
            self.accepted_ns,
            self.deadline_ns,
            len(payload),
            key_bytes,
        )
        engine.gateway.wait_for(self, slot)

    def _send_again(self, result_bytes: int) -> None:
        raise ModelFailed(
            f"the model's answer takes {result_bytes} bytes, more than its signature says"
        )
