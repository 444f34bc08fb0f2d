"""Session of a client with one engine: its channel, and the models that serve there."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ringbatch.frontend.client.arrays import ArrayCodec
from ringbatch.frontend.client.calls import ClientCodec, ClientModel, UnsentRequest
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.texts import ClientTextCodec
from ringbatch.frontend.codec.result_sizes import ResultSizes
from ringbatch.frontend.codec.resumption import ResumptionPlan
from ringbatch.frontend.v1.json_values import ValueCodec
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec, defaults
from ringbatch.shm.segment import Segment


class Session(NamedTuple):
    """Attachment to an engine, for as long as the engine lives.

    Attributes:
        channel: to the engine.
        segment: of the engine.
        table: the number of the model table that `models` was read from.
        models: those that serve, by name.
    """

    channel: Channel
    segment: Segment
    table: int
    models: dict[str, ClientModel]


def models_of(
    segment: Segment, known: Mapping[str, ClientModel] = MappingProxyType({})
) -> tuple[int, dict[str, ClientModel]]:
    """Return the number of a segment's model table, and its serving models by name.

    Each is the version that the engine chooses. Known models keep all that was learned of them.
    """
    table = segment.read_models()
    models = {}
    for name, spec in defaults(segment.models).items():
        model = known.get(name)
        if model is None or model.spec != spec:
            model = _model(spec, segment)
        models[name] = model
    return table, models


def _model(spec: ModelSpec, segment: Segment) -> ClientModel:
    arrays = ArrayCodec(spec) if spec.typed else None
    codec: ClientCodec = ValueCodec(spec) if arrays is None else arrays
    if spec.tokens is not None:
        arrays = ArrayCodec(spec) if arrays is None else arrays
        codec = ClientTextCodec(arrays, spec)
    takes = segment.layout.model(spec.index) + ModelWords.TAKES
    sizes = ResultSizes(codec.result_bytes, spec.chain)
    resumption = ResumptionPlan(spec) if spec.resumes else None
    return ClientModel(spec, codec, sizes, takes, resumption, arrays)


def refused(session: Session, spec: ModelSpec | None, error: RequestError) -> RequestError:
    """Count a request that is not sent, and return its error; `spec` is of its model."""
    session.channel.resume(UnsentRequest(session.channel, spec, error))
    return error
