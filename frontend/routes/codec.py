"""Codec for requests of code in this process: arrays in and out, on the request pipeline."""

from collections.abc import Sequence
from typing import Any, NoReturn

from ringbatch.frontend.client.arrays import ArrayCodec
from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.routes.models import Settled
from ringbatch.frontend.v1.json_values import ValueCodec
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import Protocol


class InProcessCodec:
    """Codec for arrays, or for lists of JSON values if a model declares no inputs.

    It is a `ringbatch.frontend.request.codec.Codec`; there is no framing.

    Args:
        models: of this process.
    """

    protocol = Protocol.CLIENT

    def __init__(self, models: Models) -> None:
        self._models = models
        self._renderings: dict[str, tuple[ModelSpec, InProcessRendering]] = {}

    def read(self, name: str, body: Any, _framing: None) -> Read[Settled]:
        """As in `Codec`; the body is what `Client.infer` takes."""
        model = self._models.by_address.get(name)
        if model is None:
            self._renderings.pop(name, None)
            raise self._models.not_found(name)
        known = self._renderings.get(name)
        if known is None or known[0] is not model.spec:
            known = model.spec, InProcessRendering(model.spec)
            self._renderings[name] = known
        rendering = known[1]
        return model, rendering.values.parse(body), rendering, 0, 0

    def meant(self, name: str, _body: Any, _framing: None) -> ServedModel | None:
        """As in `Codec`."""
        return self._models.by_address.get(name)

    def refusal(self, _name: str, error: RequestError) -> Settled:
        """As in `Codec`."""
        return None, error


class InProcessRendering:
    """Rendering of answers for one model: arrays of their own memory.

    Attributes:
        values: the codec of arrays, or of JSON values, for the model.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.values: ArrayCodec | ValueCodec = ArrayCodec(spec) if spec.typed else ValueCodec(spec)

    @property
    def part_limits(self) -> PartLimits:
        """As in `Rendering`."""
        return NO_LIMITS

    def render(self, results: Results, _batch_id: str) -> Settled:
        """As in `Rendering`."""
        return self.values.render([(rows, bytearray(result)) for rows, result in results]), None

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, _batch_id: str
    ) -> Settled:
        """As in `Rendering`."""
        return self.values.render([(rows, bytearray(memory[start : start + size]))]), None

    def apart(self, _rows: Sequence[int], _size: int, _batch_id: str) -> None:
        """Return None: arrays are copied, not written."""

    def written(self, value: Any, data: Sequence[memoryview]) -> NoReturn:
        """Fail: no other process writes arrays."""
        raise NotImplementedError

    def render_error(self, error: RequestError, _batch_id: str) -> Settled:
        """As in `Rendering`."""
        return None, error
