"""Large V2 answers: another process writes them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ringbatch.frontend.v2.answer import InferAnswers, answers_of
from ringbatch.frontend.v2.requested_outputs import RequestedOutput, RequestedOutputs
from ringbatch.shm.model_spec import loads

_MODELS: Final = 64


def write_v2(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[bytes]]:
    """Write an answer: its headers and its body.

    Args:
        value: the model, as the model table has it; what the request asked for, as
            `requested_told` has it; the id of the batch; the rows of each part.
        data: the result of each part.

    Raises:
        RequestError: as of `InferAnswers.render`.
    """
    spec, asked, batch_id, rows = value
    parts = [*zip(rows, data, strict=True)]
    body, headers = _answers(spec).render(parts, requested_told(asked), batch_id)
    return headers, [body]


def requested_told(value: Any) -> RequestedOutputs:
    """What a request wants of its answer, as it comes from another process: its id, the outputs and
    its timeout."""
    identity, outputs, timeout_ns = value
    wanted = tuple(RequestedOutput(*output) for output in outputs)
    return RequestedOutputs(identity.encode("latin-1"), wanted, timeout_ns)


@lru_cache(_MODELS)
def _answers(spec: str) -> InferAnswers:
    (model,) = loads(spec.encode())
    return answers_of(model)
