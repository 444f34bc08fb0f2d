"""The Open Inference Protocol V2 for one model: request bodies to slots, results to answers."""

from collections.abc import Callable, Sequence

from ringbatch.frontend.v2_answer import Answer, renderer
from ringbatch.frontend.v2_memory import OFF, ClientMemory
from ringbatch.frontend.v2_request import Expected, Request, requests
from ringbatch.frontend.v2_wants import Wants
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.manifest import ModelSpec

__all__ = ["Answer", "Request", "V2Codec", "Wants"]


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

    expected: Callable[[bytes, int], Expected | None]
    """``expected(text, binary_bytes)``: as `InferRequests.expected`."""

    render: Callable[[Sequence[tuple[int, memoryview]], Wants, str], Answer]
    """``render(parts, wants, batch_id)``: the answer, from the rows and the result of each part in
    order; raises `ModelFailed` for a result that does not fit the model's outputs, and
    `InvalidRequest` where it is wanted as JSON and cannot be."""

    def __init__(self, spec: ModelSpec, memory: ClientMemory = OFF) -> None:
        self._name = spec.name
        self.parse, self.expected = self._refuse, self._expect_nothing
        if spec.typed:
            reader = requests(spec, memory)
            self.parse, self.expected = reader.parse, reader.expected
        self.render = renderer(spec)

    def _refuse(self, _body: bytes | bytearray, _json_bytes: int | None) -> Request:
        raise InvalidRequest(
            f'model "{self._name}" declares no inputs, so that V2 has no tensors to send it; '
            "use /v1/models/NAME:predict"
        )

    def _expect_nothing(self, _text: bytes, _binary_bytes: int) -> Expected | None:
        return None
