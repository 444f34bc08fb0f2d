"""Codec of Triton's generate extension, see `ringbatch.frontend.v2.generate`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import (
    LARGE_BODY_BYTES,
    Offloaded,
    encode_headers,
    read_generate,
)
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.texts.offloaded_texts import decode_parts
from ringbatch.frontend.v2.generate import GenerateRendering, infer_request
from ringbatch.frontend.v2.offloaded_answers import decode_requested
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.frontend.v2.request import decoded
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol


class GenerateCodec:
    """A `ringbatch.frontend.request.codec.Codec` of the extension; it is counted with V2.

    Args:
        models: of this process.
        headers: the headers of the one request that it is for.
    """

    def __init__(self, models: Models, headers: RawHeaders) -> None:
        self.protocol = Protocol.V2
        self._models = models
        self._headers = headers

    def meant(self, name: str, _body: Body, _framing: None) -> ServedModel | None:
        """As in `Codec`."""
        return self._models.by_address.get(name)

    def read(self, name: str, body: Body, _framing: None) -> Read[Answer]:
        """As in `Codec`."""
        models = self._models
        model = models.by_address.get(name)
        if model is None:
            raise models.not_found(name)
        v2, spec = model.v2, model.spec
        if len(body) > LARGE_BODY_BYTES:
            headers, shares = encode_headers(self._headers), models.regions.on
            value = dumps((spec,)).decode(), models.max_in_flight, shares, headers
            raise Offloaded(read_generate, value, partial(self._decoded, model), spec.timeout_ns)
        requests = v2.requests if v2.asked is None else v2.asked.with_headers(self._headers)
        parts, requested = requests.read(infer_request(decoded(body), spec), body)
        return _read(model, parts, requested)

    @staticmethod
    def _decoded(model: ServedModel, value: Any, data: Sequence[memoryview]) -> Read[Answer]:
        encoded, wanted = value
        return _read(model, decode_parts(encoded, data), decode_requested(wanted))

    def refusal(self, _name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return outcome(error)


def _read(
    model: ServedModel, parts: tuple[SlotPart, ...], requested: RequestedOutputs
) -> Read[Answer]:
    rendering = GenerateRendering(V2Rendering(model.v2.answers, requested))
    return model, parts, rendering, requested.timeout_ns, requested.level
