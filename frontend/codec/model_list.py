"""V1's list of models, in one document for KServe's clients and OpenAI's. Pure."""

from collections.abc import Iterable
from typing import Any, Final

Json = dict[str, Any]

OWNER: Final = "ringbatch"


def as_openai(name: str, since_s: int) -> Json:
    """Return OpenAI's members of a model.

    Args:
        name: of the model.
        since_s: since when it is served, in seconds since 1970.
    """
    return {"id": name, "object": "model", "created": since_s, "owned_by": OWNER}


def model_list(names: Iterable[str], since_s: int) -> Json:
    """Return the list of models: their names as KServe has them, and OpenAI's objects."""
    models = list(names)
    data = [as_openai(name, since_s) for name in models]
    return {"models": models, "object": "list", "data": data}
