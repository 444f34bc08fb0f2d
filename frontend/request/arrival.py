"""Large request whose tensor is received straight into its slot.

Once the bytes before the tensor are there, all but its values is known: the number of rows, the
tensor's place in the slot, and the form of the answer. So the process claims the slot then, and
receives the rest of the body into it, with no copy in between over HTTP/1, and one over gRPC. Less
simple requests are gathered in the process and go the usual way.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ringbatch.frontend.codec.payload import LazyBytes
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.pipeline import Pipeline
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.shm.errors import RequestError
from ringbatch.shm.layout import aligned
from ringbatch.shm.tallies import Protocol

A = TypeVar("A")

LARGE_BYTES: Final = 1 << 16
"""A smaller tensor has mostly come with its head, and costs next to nothing to copy."""
_SHARE: Final = 2
"""Part of the lane's memory that may wait for bytes that senders still owe: one in this number."""


class Arrivals(Generic[A]):
    """The slots of one process that wait for their bytes; the codec of what then is there.

    Args:
        pipeline: the way of these requests.
        protocol: in which they come.
        refusal: the answer to one that cannot be sent.
    """

    def __init__(
        self, pipeline: Pipeline, protocol: Protocol, refusal: Callable[[RequestError], A]
    ) -> None:
        self.protocol = protocol
        self._pipeline = pipeline
        self._refusal = refusal
        self._lane = pipeline.engine.lane
        self._limit_bytes = pipeline.engine.lane_bytes // _SHARE
        self._owed_bytes = 0

    def claim(
        self,
        model: ServedModel,
        rows: int,
        tensor_bytes: int,
        rendering: Rendering[A],
        worth_ns: int,
        level: int = 0,
        timeout_ns: int = 0,
        account: int = 0,
    ) -> "Arrival[A] | None":
        """Claim a slot for a request of which only the tensor is to come.

        Args:
            model: for which it is, one whose answers have a known size.
            rows: instances in it, no more than one slot may hold.
            tensor_bytes: how many bytes are to come.
            rendering: how it is answered.
            worth_ns: for how long it says that an answer is worth having; 0 if it does not.
            level: of its class, as in `Read`; 0 if it does not say.
            timeout_ns: how long the client waits; 0 if it does not say.
            account: its account word, see `ringbatch.shm.account`.

        Returns:
            None if there is no room now, so that it is to go the usual way.
        """
        result_bytes = model.result_bytes(rows, tensor_bytes)
        size = aligned(tensor_bytes) + result_bytes
        if self._owed_bytes + size > self._limit_bytes:
            return None
        slot = self._lane.claim(tensor_bytes, result_bytes, model.reference)
        if slot is None:
            return None
        self._owed_bytes += size
        start = self._lane.request_offset[slot]
        payload = ArrivedBytes(self._lane.memory[start : start + tensor_bytes], slot)
        read = model, ((rows, payload, 0),), rendering, worth_ns, level
        return Arrival(self, read, payload, size, timeout_ns, account)

    def take(self, arrival: "Arrival[A]", reply: Callable[[A], None]) -> RequestHandle | None:
        """Send a request on its way that has come in full."""
        self._owed_bytes -= arrival.size
        name, timeout_ns = arrival.model.spec.name, arrival.timeout_ns
        start, call = self._pipeline.start, None
        try:
            call = start(self, name, arrival, None, reply, timeout_ns, arrival.account)
        finally:
            if call is None:
                self._lane.abort(arrival.payload.slot)
        return call

    def read(self, name: str, body: "Arrival[A]", framing: None) -> Read[A]:
        """As in `Codec`; all there is to read was read before the bytes came."""
        return body.read

    def meant(self, name: str, body: "Arrival[A]", framing: None) -> ServedModel:
        """As in `Codec`."""
        return body.model

    def refusal(self, name: str, error: RequestError) -> A:
        """As in `Codec`."""
        return self._refusal(error)

    def drop(self, arrival: "Arrival[A]") -> None:
        """Give back the slot of a request that will not come."""
        self._owed_bytes -= arrival.size
        self._lane.abort(arrival.payload.slot)


class Arrival(Generic[A]):
    """Request whose tensor is still coming into its slot; an `Upload`.

    Attributes:
        read: the request as it was read, without the tensor.
        payload: its tensor.
        size: bytes of the lane's memory that it holds.
        timeout_ns: how long the client waits once it has come; 0 if it does not say.
        account: its account word.
    """

    __slots__ = ("_arrivals", "account", "payload", "read", "size", "timeout_ns")

    def __init__(
        self,
        arrivals: Arrivals[A],
        read: Read[A],
        payload: "ArrivedBytes",
        size: int,
        timeout_ns: int,
        account: int,
    ) -> None:
        self._arrivals = arrivals
        self.read = read
        self.payload = payload
        self.size = size
        self.timeout_ns = timeout_ns
        self.account = account

    @property
    def model(self) -> ServedModel:
        """Model that the request is for."""
        return self.read[0]

    @property
    def memory(self) -> memoryview:
        """As in `Upload`."""
        return self.payload.memory

    def arrived(self, reply: Callable[[A], None]) -> RequestHandle | None:
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
