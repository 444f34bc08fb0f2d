"""Reranking by a cross-encoder, as Hugging Face's TEI and as Cohere have it; pure.

    POST /rerank   {"query": ..., "texts": [...], "raw_scores": false, "return_text": false}
                   -> [{"index": 2, "score": 0.98}, ...]
                   {"query": ..., "documents": [...], "top_n": 3, "return_documents": false}
                   -> {"results": [{"index": 2, "relevance_score": 0.98}, ...]}

Which of them is meant, the member with the texts says. Answers are sorted, the best text first.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.frontend.codec.outcome import JSON, Answer, outcome
from ringbatch.frontend.codec.rendering import Rendering, Results
from ringbatch.frontend.texts.bodies import expect_members, optional, parsed, required_texts
from ringbatch.frontend.texts.rows import Given, expect_finite
from ringbatch.shm.errors import InvalidRequest, RequestError

PATHS: Final[tuple[str, ...]] = ("/rerank", "/v1/rerank", "/v2/rerank")
"""TEI's, and those of Cohere's clients."""
_OF_TEI: Final = (
    "model",
    "query",
    "texts",
    "raw_scores",
    "return_text",
    "truncate",
    "truncation_direction",
)
_OF_COHERE: Final = (
    "model",
    "query",
    "documents",
    "top_n",
    "return_documents",
    "raw_scores",
    "truncate",
    "max_tokens_per_doc",
    "priority",
)
_IGNORED: Final = ("truncation_direction", "max_tokens_per_doc")


@dataclass(frozen=True, slots=True)
class Reranking:
    """What a body asks for.

    Attributes:
        model: its name; empty where the body has none.
        given: the query with each of the texts.
        texts: in the order of the request.
        top: so many of the best are wanted; 0 for all.
        raw: whether scores are wanted as the model gives them; else between 0 and 1.
        returns_texts: whether they are wanted with the scores.
        cohere: whether the answer has Cohere's form; else TEI's.
    """

    model: str
    given: Given
    texts: list[str]
    top: int
    raw: bool
    returns_texts: bool
    cohere: bool


def read(body: bytes | bytearray) -> Reranking:
    """What a body asks for.

    Raises:
        InvalidRequest: naming what was found and what would be right.
    """
    found = parsed(body)
    cohere = "documents" in found
    if not cohere and "texts" not in found:
        raise InvalidRequest('"texts" is missing; it must be a list of texts ("documents" will do)')
    expect_members(found, _OF_COHERE if cohere else _OF_TEI)
    for name in _IGNORED:
        if found.get(name) not in (None, "Right", "right"):
            raise InvalidRequest(f'"{name}" is not supported; leave it out')
    query = optional(found, "query", str, "a text")
    if query is None:
        raise InvalidRequest('"query" is missing; it must be a text')
    texts = _documents(found) if cohere else required_texts(found, "texts")
    top = optional(found, "top_n", int, "a whole number from 1")
    if top is not None and top < 1:
        raise InvalidRequest(f'"top_n" is {top}; it must be a whole number from 1')
    wants_texts = "return_documents" if cohere else "return_text"
    truncate = optional(found, "truncate", bool, "true or false")
    return Reranking(
        model=optional(found, "model", str, "the name of a model") or "",
        given=Given([(query, text) for text in texts], truncate=truncate),
        texts=texts,
        top=top or 0,
        raw=bool(optional(found, "raw_scores", bool, "true or false")),
        returns_texts=bool(optional(found, wants_texts, bool, "true or false")),
        cohere=cohere,
    )


def _documents(found: dict[str, Any]) -> list[str]:
    """Documents are texts, or objects with one."""
    documents = found["documents"]
    if isinstance(documents, list):
        documents = [d["text"] if isinstance(d, dict) and "text" in d else d for d in documents]
    return required_texts({"documents": documents}, "documents")


class RerankingRendering(Rendering[Answer]):
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Args:
        asked: the request.
        model: what it is called in the answer.
    """

    def __init__(self, asked: Reranking, model: str) -> None:
        self._asked = asked
        self._model = model

    def render(self, results: Results, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        asked = self._asked
        scores = np.concatenate([np.frombuffer(result, np.float32) for _, result in results])
        if not asked.raw:
            scores = _between_0_and_1(scores)
        expect_finite(scores)
        best = np.argsort(-scores, kind="stable")[: asked.top or None].tolist()
        ranked = [self._entry(place, float(scores[place])) for place in best]
        answer: Any = ranked
        if asked.cohere:
            tokens = sum(asked.given.counts)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            answer = {"results": ranked, "model": self._model, "usage": usage}
        return 200, orjson.dumps(answer), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return outcome(error)

    def _entry(self, place: int, score: float) -> dict[str, Any]:
        asked = self._asked
        found: dict[str, Any] = {"index": place}
        found["relevance_score" if asked.cohere else "score"] = score
        if asked.returns_texts:
            text = asked.texts[place]
            found |= {"document": {"text": text}} if asked.cohere else {"text": text}
        return found


def _between_0_and_1(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    exponents = np.exp(-np.abs(scores))
    found: NDArray[np.float32] = np.where(scores >= 0, 1, exponents) / (1 + exponents)
    return found
