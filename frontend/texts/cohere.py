"""Cohere's embeddings, and errors in its form. Pure.

    POST /v2/embed   {"model": ..., "texts": [...], "input_type": "search_query",
                      "embedding_types": ["float"], "output_dimension": N, "truncate": "END"}
                     -> {"id": ..., "embeddings": {"float": [[0.1, ...], ...]}, "texts": [...]}
    POST /v1/embed   the same without "embedding_types"
                     -> {"id": ..., "embeddings": [[0.1, ...], ...], "texts": [...]}

`input_type` is not added to a text: a model that expects a prompt gets it from the client.
"""

import base64
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson

from ringbatch.frontend.codec.json_to_tensor import shown
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
from ringbatch.shm.errors import InvalidRequest, RequestError

EMBED_V1: Final = "/v1/embed"
EMBED_V2: Final = "/v2/embed"
_KNOWN: Final = (
    *("model", "texts", "input_type", "embedding_types", "output_dimension", "truncate"),
    *("inputs", "images", "max_tokens", "priority"),
)
_TYPES: Final = ("float", "base64")
_TRUNCATE: Final[dict[str | None, bool | None]] = {None: None, "NONE": False, "END": True}


@dataclass(frozen=True, slots=True)
class Embedding:
    """A request for embeddings.

    Attributes:
        model: its name; empty if the body has none.
        given: the texts.
        echoed: the texts, which the answer repeats.
        types: the forms in which vectors are wanted; none for the answer that has only numbers.
        dimensions: the number of dimensions that are wanted; 0 for all.
    """

    model: str
    given: GivenTexts
    echoed: list[str]
    types: list[str]
    dimensions: int


def _read(default_types: tuple[str, ...], body: bytes | bytearray) -> Embedding:
    """Return the request in a body.

    Args:
        default_types: if the body has no "embedding_types".
        body: of the request.

    Raises:
        InvalidRequest: naming what was found and what would be right.
    """
    found = parsed(body)
    expect_members(found, _KNOWN)
    for name in ("inputs", "images", "max_tokens"):
        if found.get(name) is not None:
            raise InvalidRequest(f'"{name}" is not supported; send texts, as "texts"')
    optional(found, "input_type", str, "a text")
    truncate = optional(found, "truncate", str, '"NONE" or "END"')
    if truncate not in _TRUNCATE:
        raise InvalidRequest(f'"truncate" is {shown(truncate)}; it must be "NONE" or "END"')
    types = [*default_types]
    if found.get("embedding_types") is not None:
        types = required_texts(found, "embedding_types")
    for name in types:
        if name not in _TYPES:
            raise InvalidRequest(
                f'"embedding_types" has {shown(name)}; each must be one of {", ".join(_TYPES)}'
            )
    texts = required_texts(found, "texts")
    return Embedding(
        model=optional(found, "model", str, "the name of a model") or "",
        given=GivenTexts(texts, truncate=_TRUNCATE[truncate]),
        echoed=texts,
        types=types,
        dimensions=optional_count(found, "output_dimension"),
    )


read_v1: Final = partial(_read, ())
read_v2: Final = partial(_read, ("float",))


class EmbeddingRendering:
    """Rendering of embeddings; `ringbatch.frontend.texts.offloaded_texts.TextsRendering` holds it.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Embedding, _model: str) -> None:
        self._asked = asked

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        asked = self._asked
        vectors = shortened(vectors_of(results), asked.dimensions)
        if asked.types != ["base64"]:
            expect_finite(vectors)
        embeddings: Any = [*vectors]
        if asked.types:
            embeddings = {name: _written(vectors, name) for name in asked.types}
        answer = {
            "id": batch_id,
            "embeddings": embeddings,
            "texts": asked.echoed,
            "response_type": "embeddings_by_type" if asked.types else "embeddings_floats",
            "meta": meta(2 if asked.types else 1, {"input_tokens": sum(asked.given.counts)}),
        }
        return 200, orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return refused(error)


def _written(vectors: Vectors, name: str) -> list[Any]:
    if name == "float":
        return [*vectors]
    return [base64.b64encode(vector.tobytes()).decode() for vector in vectors]


def meta(version: int, billed: dict[str, int]) -> dict[str, Any]:
    """Return the member of an answer that clients read as its bill."""
    return {"api_version": {"version": str(version)}, "billed_units": billed}


def refused(error: RequestError) -> Answer:
    """Return the answer that names the reason for which there is no result."""
    _, _, headers = outcome(error)
    return status_of(error), error_body(status_of(error), text_of(error)), headers


def error_body(_status: int, text: str) -> bytes:
    """Return an error in Cohere's form, and in that of other servers at the same paths."""
    message = text.encode(errors="replace").decode()
    return orjson.dumps({"message": message, "error": message})
