"""Writer of large V2 answers, in another process."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.v2.answer import InferAnswers, InferResponse, answers_of
from ringbatch.frontend.v2.requested_outputs import RequestedOutput, RequestedOutputs
from ringbatch.shm.model_spec import loads

_MODELS: Final = 64


Render = Callable[
    [InferAnswers, Sequence[tuple[int, memoryview]], RequestedOutputs, str], InferResponse
]


def write_v2(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[bytes]]:
    """Write an answer of V2; arguments and errors as for `write_with`."""
    return write_with(InferAnswers.render, value, data)


def write_with(render: Render, value: Any, data: Sequence[memoryview]) -> tuple[Any, list[bytes]]:
    """Write an answer: its headers and its body.

    Args:
        render: a method that writes answers.
        value: the model, as in the model table; the requested outputs, as `encode_requested`
            returns them; the id of the batch; the number of rows of each part.
        data: the result of each part.

    Raises:
        RequestError: `render` raises it.
    """
    spec, asked, batch_id, rows = value
    parts = [*zip(rows, data, strict=True)]
    body, headers = render(_answers(spec), parts, decode_requested(asked), batch_id)
    return headers, [body]


def encode_requested(requested: RequestedOutputs) -> list[Any]:
    """Return requested outputs in a form for another process, for `decode_requested`."""
    identity, outputs, *rest, limits = requested
    return [identity.decode("latin-1"), [*map(list, outputs)], *rest, [*limits]]


def decode_requested(value: Any) -> RequestedOutputs:
    """Return the requested outputs that another process has encoded."""
    identity, outputs, timeout_ns, level, limits = value
    wanted, own = tuple(RequestedOutput(*output) for output in outputs), PartLimits(*limits)
    return RequestedOutputs(identity.encode("latin-1"), wanted, timeout_ns, level, own)


@lru_cache(_MODELS)
def _answers(spec: str) -> InferAnswers:
    (model,) = loads(spec.encode())
    return answers_of(model)
