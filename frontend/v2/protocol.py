"""The Open Inference Protocol V2 for one model: request bodies to slots, results to answers."""

from ringbatch.frontend.codec.limit_messages import ANY_NUMBER
from ringbatch.frontend.v2.answer import InferResponse, answers_of
from ringbatch.frontend.v2.number_request import NumberRequests
from ringbatch.frontend.v2.request import InferRequests, NoRequests
from ringbatch.frontend.v2.request_context import context_requests
from ringbatch.frontend.v2.request_records import InferRequest, Requests
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory
from ringbatch.shm.model_spec import ModelSpec

__all__ = ["InferRequest", "InferResponse", "RequestedOutputs", "V2Model"]


class V2Model:
    """Readers and writers of V2 for one model.

    A model without declared inputs has no tensors, and every request to it is refused.

    Attributes:
        asked: reads bodies for a model that asks for the request context; None for others.
        requests: reads bodies.
        answers: writes answers.

    Args:
        spec: the model.
        memory: the clients' memory that may hold tensors.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(
        self, spec: ModelSpec, memory: ClientMemory = OFF, max_in_flight: int = ANY_NUMBER
    ) -> None:
        self.asked = context_requests(spec, memory, max_in_flight)
        self.requests = self.asked or requests_of(spec, memory, max_in_flight)
        self.answers = answers_of(spec)
        self._fixed = all(tensor.datatype.fixed for tensor in spec.inputs)

    def takes_long(self, body_bytes: int, json_bytes: int | None, most: int) -> bool:
        """Return whether more than `most` bytes of a body are read one by one.

        These are the bytes of its JSON text, and of elements that state their lengths.
        """
        if json_bytes is None or not self._fixed:
            return body_bytes > most
        return most < json_bytes <= body_bytes


def requests_of(
    spec: ModelSpec, memory: ClientMemory = OFF, max_in_flight: int = ANY_NUMBER
) -> Requests:
    """Return the reader of requests to this model.

    Args:
        spec, memory, max_in_flight: as in `InferRequests`.
    """
    if not spec.typed:
        return NoRequests(spec)
    first = spec.inputs[0]
    numbers = bool(first.datatype.code) and first.datatype.name != "BOOL"
    if len(spec.inputs) == 1 and numbers and first.static and 0 not in first.shape and spec.batched:
        return NumberRequests(spec, memory, max_in_flight)
    return InferRequests(spec, memory, max_in_flight)
