"""Model that a refused body means, for the metrics and the log."""

from collections.abc import Sequence

import orjson

from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.served_model import ServedModel


def meant_model(
    models: Models, suitable: Sequence[str], body: Body, most_bytes: int
) -> ServedModel | None:
    """Return the model that a body names, or the only suitable one; None if that is unclear.

    Args:
        models: of this process.
        suitable: the models that the path is for.
        body: refused before its model was looked for.
        most_bytes: a longer body is not read again.
    """
    if len(body) > most_bytes:
        return None
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    named = value.get("model") if isinstance(value, dict) else None
    if not named and len(suitable) == 1:
        named = suitable[0]
    return models.by_address.get(named) if isinstance(named, str) else None
