"""OpenAI's paths and errors, and its embeddings: bodies in, answers in their form; pure.

    POST /v1/embeddings   {"model": ..., "input": a text, a list of texts, tokens, or lists of them,
                           "encoding_format": "float" or "base64", "dimensions": N}

Beside what OpenAI has, ``truncate`` says for one request what the model's setting says for all.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.frontend.codec.outcome import JSON, Answer, outcome, status_of, text_of
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.texts.bodies import (
    expect_members,
    optional,
    optional_count,
    parsed,
    required_texts,
)
from ringbatch.frontend.texts.rows import GivenTexts, expect_finite
from ringbatch.frontend.texts.vectors import Vectors, shortened, vectors_of
from ringbatch.shm.errors import InvalidRequest, ModelNotFound, RequestError, Unauthenticated

PATH: Final = "/v1/embeddings"
COMPLETIONS: Final = "/v1/completions"
CHAT_COMPLETIONS: Final = "/v1/chat/completions"
TOO_LONG: Final = "this model's maximum context length is"
"""The beginning of the error that OpenAI's clients know by its code."""
NOT_HAD: Final[tuple[str, ...]] = (
    "/v1/responses",
    "/v1/moderations",
    "/v1/v1/embeddings",
    "/embeddings",
    "/chat/completions",
    "/completions",
    "/responses",
)
"""Paths that its clients ask, at which there is nothing; they read no other form of errors.

Those without /v1, or with two, come from clients with a wrong base address.
"""
_SERVER_ERRORS: Final = 500
_KNOWN: Final = ("model", "input", "encoding_format", "dimensions", "user", "truncate")
_FORMATS: Final = ("float", "base64")


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Request for embeddings.

    Attributes:
        model: its name; empty if the body has none.
        given: the texts, or tokens.
        base64: True for vectors in base64, little-endian FP32; else lists of numbers.
        dimensions: the first so many of each vector, scaled to length 1 again; 0 for all.
    """

    model: str
    given: GivenTexts
    base64: bool
    dimensions: int


def read(body: bytes | bytearray) -> Embeddings:
    """Return the request in a body.

    Raises:
        InvalidRequest: with the value found and the right form.
    """
    found = parsed(body)
    expect_members(found, _KNOWN)
    model = optional(found, "model", str, "the name of a model") or ""
    form = optional(found, "encoding_format", str, '"float" or "base64"') or "float"
    if form not in _FORMATS:
        raise InvalidRequest(f'"encoding_format" is "{form[:40]}"; it must be "float" or "base64"')
    dimensions = optional_count(found, "dimensions")
    truncate = optional(found, "truncate", bool, "true or false")
    given = texts_or_tokens(found, "input", truncate)
    return Embeddings(model, given, form == "base64", dimensions)


def texts_or_tokens(found: dict[str, Any], name: str, truncate: bool | None) -> GivenTexts:
    """Return a member that is a text, a list of texts, the tokens of one, or a list of these.

    Raises:
        InvalidRequest: it is not.
    """
    value = found.get(name)
    if isinstance(value, list) and value:
        if all(map(_is_token, value)):
            return GivenTexts((), [value], truncate=truncate)
        if all(isinstance(ids, list) and ids and all(map(_is_token, ids)) for ids in value):
            return GivenTexts((), value, truncate=truncate)
    return GivenTexts(required_texts(found, name), truncate=truncate)


def _is_token(value: object) -> bool:
    return type(value) is int


class EmbeddingsRendering:
    """Rendering of embeddings; `ringbatch.frontend.texts.offloaded_texts.TextsRendering` holds it.

    Args:
        asked: the request.
        model: the model's name in the answer.
    """

    def __init__(self, asked: Embeddings, model: str) -> None:
        self._asked = asked
        self._model = model

    def render(self, results: Results, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        counts = sum(self._asked.given.counts)
        data = [
            {"object": "embedding", "index": index, "embedding": self._written(vector)}
            for index, vector in enumerate(self._vectors(results))
        ]
        answer = {
            "object": "list",
            "data": data,
            "model": self._model,
            "usage": {"prompt_tokens": counts, "total_tokens": counts},
        }
        return 200, orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return refused(error)

    def _vectors(self, results: Results) -> Vectors:
        vectors = vectors_of(results)
        if not self._asked.base64:
            expect_finite(vectors)
        return shortened(vectors, self._asked.dimensions)

    def _written(self, vector: NDArray[np.float32]) -> str | NDArray[np.float32]:
        if self._asked.base64:
            return base64.b64encode(vector.tobytes()).decode()
        return np.ascontiguousarray(vector)


def refused(error: RequestError) -> Answer:
    """Return the answer for an error."""
    _, _, headers = outcome(error)
    return status_of(error), error_body(status_of(error), text_of(error), _code(error)), headers


def error_body(status: int, text: str, code: str | None = None) -> bytes:
    """Return an error in OpenAI's form."""
    kind = "server_error" if status >= _SERVER_ERRORS else "invalid_request_error"
    message = text.encode(errors="replace").decode()
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _code(error: RequestError) -> str | None:
    if isinstance(error, InvalidRequest) and str(error).startswith(TOO_LONG):
        return "context_length_exceeded"
    if isinstance(error, ModelNotFound):
        return "model_not_found"
    return "invalid_api_key" if isinstance(error, Unauthenticated) else None


def only(names: Sequence[str], model: str, purpose: str) -> str:
    """Return the model that the request names, or the only one.

    Raises:
        InvalidRequest: none is named, and there is not one alone.
    """
    if model:
        return model
    if len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    raise InvalidRequest(f'"model" is missing; models for {purpose} are: {known}')
