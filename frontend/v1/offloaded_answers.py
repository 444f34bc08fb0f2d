"""Writer of large V1 answers, in another process."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ringbatch.frontend.v1.answer import Answers, answers_of
from ringbatch.shm.model_spec import loads

_MODELS: Final = 64


def write_v1(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[bytes]]:
    """Write the body of an answer.

    Args:
        value: the model, as in the model table, but no model of another server; whether the client
            wants column format; the id of the batch; the number of rows of each part.
        data: the result of each part.

    Raises:
        ModelFailed: `Answers.render` raises it.
    """
    spec, columns, batch_id, rows = value
    return None, [_answers(spec).render([*zip(rows, data, strict=True)], columns, batch_id)]


@lru_cache(_MODELS)
def _answers(spec: str) -> Answers:
    (model,) = loads(spec.encode())
    return answers_of(model)
