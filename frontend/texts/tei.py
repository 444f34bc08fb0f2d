"""Hugging Face's TEI: embeddings, facts about a model, and errors in its form. Pure.

    POST /embed    {"inputs": a text, a list of texts, tokens, or lists of them,
                    "normalize": true, "dimensions": N, "truncate": false}
                   -> [[0.1, ...], ...]
    GET /info      -> {"model_id": ..., "model_type": {"embedding": {...}}, ...}

`normalize` scales vectors to length 1, as in TEI by default. With false, they are as the model
returns them.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from ringbatch.frontend.codec.outcome import JSON, Answer, outcome, status_of, text_of
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.texts.bodies import expect_members, optional, optional_count, parsed
from ringbatch.frontend.texts.openai import texts_or_tokens
from ringbatch.frontend.texts.rows import GivenTexts, expect_finite
from ringbatch.frontend.texts.vectors import scaled, shortened, vectors_of
from ringbatch.shm.errors import InvalidRequest, Overloaded, RequestError
from ringbatch.shm.model_spec import ModelSpec

EMBED: Final = "/embed"
INFO: Final = "/info"
HEALTH: Final = "/health"
_KNOWN: Final = (
    *("model", "inputs", "normalize", "dimensions"),
    *("truncate", "truncation_direction", "prompt_name"),
)
_KINDS: Final = {"embedding": "embedding", "score": "reranker", "logits": "classifier"}
"""TEI's names of the types of models, by the model's output."""
_SERVER_ERRORS: Final = 500
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Embedding:
    """A request for embeddings.

    Attributes:
        model: its name; empty if the body has none.
        given: the texts, or tokens.
        normalize: whether vectors are scaled to length 1.
        dimensions: the number of dimensions that are wanted; 0 for all.
    """

    model: str
    given: GivenTexts
    normalize: bool
    dimensions: int


def read(body: bytes | bytearray) -> Embedding:
    """Return the request in a body.

    Raises:
        InvalidRequest: naming what was found and what would be right.
    """
    found = parsed(body)
    expect_members(found, _KNOWN)
    if found.get("truncation_direction") not in (None, "Right", "right"):
        raise InvalidRequest('"truncation_direction" is not supported; leave it out')
    if found.get("prompt_name") is not None:
        raise InvalidRequest('"prompt_name" is not supported; write the prompt before each text')
    truncate = optional(found, "truncate", bool, "true or false")
    normalize = optional(found, "normalize", bool, "true or false")
    return Embedding(
        model=optional(found, "model", str, "the name of a model") or "",
        given=texts_or_tokens(found, "inputs", truncate),
        normalize=normalize is not False,
        dimensions=optional_count(found, "dimensions"),
    )


class EmbeddingRendering:
    """Rendering of embeddings; `ringbatch.frontend.texts.offloaded_texts.TextsRendering` holds it.

    Args:
        asked: the request.
    """

    def __init__(self, asked: Embedding, _model: str) -> None:
        self._asked = asked

    def render(self, results: Results, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        vectors = vectors_of(results)
        expect_finite(vectors)
        vectors = shortened(vectors, self._asked.dimensions)
        if self._asked.normalize:
            vectors = scaled(vectors)
        return 200, orjson.dumps([*vectors], option=orjson.OPT_SERIALIZE_NUMPY), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return refused(error)


def refused(error: RequestError) -> Answer:
    """Return the answer that names the reason for which there is no result."""
    _, _, headers = outcome(error)
    kind = "Overloaded" if isinstance(error, Overloaded) else ""
    return status_of(error), error_body(status_of(error), text_of(error), kind), headers


def error_body(status: int, text: str, kind: str = "") -> bytes:
    """Return an error in TEI's form.

    Args:
        status: of the answer.
        text: the reason.
        kind: its type; by default that of the status.
    """
    if not kind:
        server = "Unhealthy" if status == _UNAVAILABLE else "Backend"
        kind = server if status >= _SERVER_ERRORS else "Validation"
    message = text.encode(errors="replace").decode()
    return orjson.dumps({"error": message, "error_type": kind})


def info(spec: ModelSpec, max_in_flight: int, version: str) -> dict[str, Any]:
    """Return the facts about a model.

    Args:
        spec: a model of texts.
        max_in_flight: the most batches that one request may make.
        version: of ringbatch.
    """
    tokens = spec.tokens
    assert tokens is not None, "the model is one of texts"
    output = spec.outputs[0]
    labels = output.labels or ()
    about: dict[str, Any] = {"pooling": None}
    if output.name != "embedding":
        about = {
            "id2label": {str(number): label for number, label in enumerate(labels)},
            "label2id": {label: number for number, label in enumerate(labels)},
        }
    return {
        "model_id": spec.name,
        "model_sha": None,
        "model_dtype": "float32",
        "served_model_name": spec.name,
        "model_type": {_KINDS[output.name]: about},
        "max_concurrent_requests": max_in_flight,
        "max_input_length": tokens.limit,
        "max_batch_tokens": spec.max_batch_elements,
        "max_batch_requests": spec.cap,
        "max_client_batch_size": max_in_flight * spec.cap,
        "auto_truncate": tokens.truncate,
        "tokenization_workers": 1,
        "version": version,
        "sha": None,
        "docker_label": None,
    }
