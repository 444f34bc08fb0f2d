"""A large request whose bytes the kernel writes straight into its slot.

Once the head of a request and the JSON text of its body are there, everything is known but the
values of its tensor: how many rows it has, where in the slot the tensor will lie, and what the
answer is to be. So the slot is claimed then, and the rest of the body received into it, with no
copy in between. Whatever is not that simple is gathered in the process and goes the usual way.
"""

from collections.abc import Callable
from typing import Final

from ringbatch.frontend.calls import (
    Call,
    Engine,
    InferTask,
    Model,
    Reply,
    Task,
    reply_error,
)
from ringbatch.frontend.request_timeout import shortest_ns
from ringbatch.frontend.v1_request import Part
from ringbatch.frontend.v2_request import Expected
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
        expect_served: Callable[[Model], None],
        expect_time: Callable[[Task], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._expect_served = expect_served
        self._expect_time = expect_time
        self._limit_bytes = engine.lane_bytes // _SHARE
        self._owed_bytes = 0

    def expect(
        self, model: Model, text: bytes, binary_bytes: int, timeout_ns: int
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
        expected = model.v2.expected(text, binary_bytes)
        if expected is None:
            return None
        room = model.result_bytes(expected.rows, binary_bytes)
        size = aligned(binary_bytes) + room
        if self._owed_bytes + size > self._limit_bytes:
            return None
        slot = self._engine.lane.claim(binary_bytes, room)
        if slot is None:
            return None
        self._owed_bytes += size
        limit_ns = shortest_ns(model.spec.timeout_ns, timeout_ns, expected.wants.timeout_ns)
        return Arrival(self, model, expected, slot, size, limit_ns)

    def take(self, arrival: "Arrival", reply: Reply) -> Call | None:
        """Send a request on its way that has come in full; as `Service.infer`."""
        model, expected = arrival.model, arrival.expected
        accepted_ns = self._clock()
        self._owed_bytes -= arrival.size
        deadline_ns = accepted_ns + arrival.limit_ns
        call = Arrived(model, expected.wants, reply, accepted_ns, deadline_ns)
        try:
            self._expect_served(model)
            self._expect_time(call)
        except RequestError as error:
            self._engine.lane.abort(arrival.slot)
            reply_error(reply, error, kserve_errors=False)
            return None
        call.send_in(self._engine, arrival.slot, Part(expected.rows, arrival.memory, 0))
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

    __slots__ = ("_arrivals", "expected", "limit_ns", "memory", "model", "size", "slot")

    def __init__(
        self,
        arrivals: Arrivals,
        model: Model,
        expected: Expected,
        slot: int,
        size: int,
        limit_ns: int,
    ) -> None:
        self._arrivals = arrivals
        self.model = model
        self.expected = expected
        self.slot = slot
        self.size = size
        self.limit_ns = limit_ns
        self.memory = arrivals.memory(slot, expected.binary_bytes)

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
        self._room = 0
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
        engine.gateway.expect(self, slot)

    def _send_again(self, result_bytes: int) -> None:
        raise ModelFailed(
            f"the model's answer takes {result_bytes} bytes, more than its signature says"
        )
