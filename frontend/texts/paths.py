"""Paths of requests about texts, which are ringbatch's where it serves a model for them. Pure."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ringbatch.frontend.codec import outcome
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.texts import classifying, cohere, openai, reranking, tei
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec

EMBEDDING: Final = "embedding"
"""The output of a model that embeds texts."""
_OF_TEXTS: Final = (openai.PATH, *reranking.PATHS)
_OF_EMBEDDERS: Final = (tei.EMBED, cohere.EMBED_V1, cohere.EMBED_V2)
_OF_GENERATORS: Final = (openai.COMPLETIONS, openai.CHAT_COMPLETIONS)
_OF_TEI: Final = (tei.INFO, tei.HEALTH)


def is_served(path: str, specs: Iterable[ModelSpec]) -> bool | None:
    """Return whether a path about texts is served.

    Args:
        path: of a request.
        specs: of the models that serve.

    Returns:
        None if it is no path about texts.
    """
    if path in _OF_TEXTS:
        return any(spec.tokens is not None for spec in specs)
    if path in _OF_GENERATORS:
        return any(spec.generator is not None for spec in specs)
    if path in _OF_EMBEDDERS:
        return any(map(embeds, specs))
    if path == classifying.PATH:
        # A name that others use too, so that it is ours for classifiers of texts alone.
        return any(map(classifying.suits, specs))
    # Every application and server has paths of these names, so that beside one they are never ours.
    return False if path in _OF_TEI else None


def embeds(spec: ModelSpec) -> bool:
    """Return whether a model embeds texts."""
    return spec.tokens is not None and spec.outputs[0].name == EMBEDDING


class ErrorForm(NamedTuple):
    """The errors of an API.

    Attributes:
        refused: makes the answer of an error.
        body: makes the body of a status and a text.
    """

    refused: Callable[[RequestError], Answer]
    body: Callable[[int, str], bytes]


_OURS: Final = ErrorForm(outcome.outcome, lambda _status, text: outcome.error_body(text))
_TEI: Final = ErrorForm(tei.refused, tei.error_body)
_COHERE: Final = ErrorForm(cohere.refused, cohere.error_body)
_OPENAI: Final = ErrorForm(openai.refused, openai.error_body)
_ERRORS: Final = {
    openai.PATH: _OPENAI,
    **dict.fromkeys((*_OF_GENERATORS, *openai.NOT_HAD), _OPENAI),
    **dict.fromkeys((tei.EMBED, reranking.PATH, classifying.PATH, *_OF_TEI), _TEI),
    **dict.fromkeys((cohere.EMBED_V1, cohere.EMBED_V2, *reranking.COHERE_PATHS), _COHERE),
}


def errors_at(path: str) -> ErrorForm:
    """Return the form of errors at a path."""
    return _ERRORS.get(path, _OURS)
