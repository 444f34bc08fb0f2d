"""The Open Inference Protocol V2 for one model: request bodies to slots, results to answers."""

from collections.abc import Callable, Sequence

from ringbatch.frontend.v2.answer import InferResponse, renderer
from ringbatch.frontend.v2.request import Outline, Request, requests
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec

__all__ = ["InferResponse", "Request", "RequestedOutputs", "V2Codec"]


class V2Codec:
    """What a V2 request to one model means, and how its answer is written; pure.

    A model without declared inputs has no tensors, and every request to it is refused.

    Args:
        spec: the model.
        memory: where clients may have tensors.
    """

    parse: Callable[[bytes | bytearray, int | None], Request]
    """``parse(body, json_bytes)``: what goes into slots; `json_bytes` is where the JSON text of the
    body ends, None where it is nothing else. Raises `RequestError`."""

    outline: Callable[[bytes, int], Outline | None]
    """``outline(text, binary_bytes)``: as `InferRequests.outline`."""

    render: Callable[[Sequence[tuple[int, memoryview]], RequestedOutputs, str], InferResponse]
    """``render(parts, requested, batch_id)``: the answer, from the rows and the result of each part
    in order; raises `ModelFailed` for a result that does not fit the model's outputs, and
    `InvalidRequest` where it is wanted as JSON and cannot be."""

    def __init__(self, spec: ModelSpec, memory: ClientMemory = OFF) -> None:
        self._name = spec.name
        self.parse, self.outline = self._refuse, self._no_outline
        if spec.typed:
            reader = requests(spec, memory)
            self.parse, self.outline = reader.parse, reader.outline
        self.render = renderer(spec)

    def _refuse(self, _body: bytes | bytearray, _json_bytes: int | None) -> Request:
        raise InvalidRequest(
            f'model "{self._name}" declares no inputs, so that V2 has no tensors to send it; '
            "use /v1/models/NAME:predict"
        )

    def _no_outline(self, _text: bytes, _binary_bytes: int) -> Outline | None:
        return None
