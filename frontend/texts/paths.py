"""Paths of requests about texts, which are ringbatch's where it serves a model for them. Pure."""

from collections.abc import Iterable
from typing import Final

from ringbatch.frontend.texts import classifying, openai, reranking
from ringbatch.shm.model_spec import ModelSpec

_OF_TEXTS: Final = (openai.PATH, *reranking.PATHS)


def is_served(path: str, specs: Iterable[ModelSpec]) -> bool | None:
    """Whether a path about texts is served.

    Args:
        path: of a request.
        specs: of the models that serve.

    Returns:
        None where it is no path about texts.
    """
    if path in _OF_TEXTS:
        return any(spec.tokens is not None for spec in specs)
    if path == classifying.PATH:
        # A name that others use too, so that it is ours for classifiers of texts alone.
        return any(map(classifying.suits, specs))
    return None
