"""A large request whose bytes the kernel writes straight into its slot.

Once the head of a request and the JSON text of its body are there, everything is known but the
values of its tensor: how many rows it has, where in the slot the tensor will lie, and what the
answer is to be. So the slot is claimed then, and the rest of the body received into it, with no
copy in between. Whatever is not that simple is gathered in the process and goes the usual way.
"""

from typing import Final

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.payload import LazyBytes
from ringbatch.frontend.request.calls import Call, Reply
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.pipeline import Pipeline
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.frontend.v2.request import Outline
from ringbatch.shm.errors import RequestError
from ringbatch.shm.layout import aligned
from ringbatch.shm.tallies import Protocol

LARGE_BYTES: Final = 1 << 16
"""A smaller tensor has mostly come with its head, and costs next to nothing to copy."""
_SHARE: Final = 2
"""Of the lane's memory, one part in so many may wait for bytes that senders still owe."""


class Arrivals:
    """The slots of one process that wait for their bytes; the codec of what then is there.

    Args:
        pipeline: the way of these requests.
    """

    protocol = Protocol.V2_BINARY

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._lane = pipeline.engine.lane
        self._limit_bytes = pipeline.engine.lane_bytes // _SHARE
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
        outline = model.v2.requests.outline(text, binary_bytes)
        if outline is None:
            return None
        result_bytes = model.result_bytes(outline.rows, binary_bytes)
        size = aligned(binary_bytes) + result_bytes
        if self._owed_bytes + size > self._limit_bytes:
            return None
        slot = self._lane.claim(binary_bytes, result_bytes)
        if slot is None:
            return None
        self._owed_bytes += size
        start = self._lane.request_offset[slot]
        memory = self._lane.memory[start : start + binary_bytes]
        return Arrival(self, model, outline, ArrivedBytes(memory, slot), size, timeout_ns)

    def take(self, arrival: "Arrival", reply: Reply) -> Call | None:
        """Send a request on its way that has come in full."""
        self._owed_bytes -= arrival.size
        name = arrival.model.spec.name
        call = None
        try:
            call = self._pipeline.start(self, name, arrival, None, reply, arrival.timeout_ns)
        finally:
            if call is None:
                self._lane.abort(arrival.payload.slot)
        return call

    def read(self, name: str, body: "Arrival", framing: None) -> Read[Answer]:
        """As in `Codec`; all there is to read was read before the bytes came."""
        outline, model = body.outline, body.model
        rendering = V2Rendering(model.v2.answers, outline.requested)
        return model, ((outline.rows, body.payload, 0),), rendering, outline.requested.timeout_ns

    def meant(self, name: str, body: "Arrival", framing: None) -> ServedModel:
        """As in `Codec`."""
        return body.model

    def refusal(self, name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return outcome(error)

    def drop(self, arrival: "Arrival") -> None:
        """Give back the slot of a request that will not come."""
        self._owed_bytes -= arrival.size
        self._lane.abort(arrival.payload.slot)


class Arrival:
    """One such request, an `Upload`."""

    __slots__ = ("_arrivals", "model", "outline", "payload", "size", "timeout_ns")

    def __init__(
        self,
        arrivals: Arrivals,
        model: ServedModel,
        outline: Outline,
        payload: "ArrivedBytes",
        size: int,
        timeout_ns: int,
    ) -> None:
        self._arrivals = arrivals
        self.model = model
        self.outline = outline
        self.payload = payload
        self.size = size
        self.timeout_ns = timeout_ns

    @property
    def memory(self) -> memoryview:
        """As in `Upload`."""
        return self.payload.memory

    def arrived(self, reply: Reply) -> Call | None:
        """As in `Upload`."""
        return self._arrivals.take(self, reply)

    def abandon(self) -> None:
        """As in `Upload`."""
        self._arrivals.drop(self)


class ArrivedBytes(LazyBytes):
    """Bytes that stand in a claimed slot and nowhere else.

    Attributes:
        memory: where they are.
    """

    __slots__ = ("_slot", "memory")

    def __init__(self, memory: memoryview, slot: int) -> None:
        self.memory = memory
        self._slot = slot

    def __len__(self) -> int:
        return len(self.memory)

    @property
    def slot(self) -> int:
        """As in `LazyBytes`."""
        return self._slot

    def read_into(self, memory: memoryview) -> None:
        """As in `LazyBytes`."""
        memory[:] = self.memory
