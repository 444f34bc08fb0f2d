"""Reranking by a cross-encoder, as Hugging Face's TEI and as Cohere have it; pure.

    POST /rerank   {"query": ..., "texts": [...], "raw_scores": false, "return_text": false}
                   -> [{"index": 2, "score": 0.98}, ...]
                   {"query": ..., "documents": [...], "top_n": 3, "return_documents": false}
                   -> {"id": ..., "results": [{"index": 2, "relevance_score": 0.98}, ...], ...}

Which of them is meant, the member with the texts says. Answers are sorted, the best text first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from ringbatch.frontend.codec.outcome import JSON, Answer
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.texts import cohere, tei
from ringbatch.frontend.texts.bodies import (
    expect_members,
    optional,
    optional_count,
    parsed,
    required_texts,
)
from ringbatch.frontend.texts.rows import GivenTexts, expect_finite
from ringbatch.frontend.texts.scores import each_between_0_and_1
from ringbatch.shm.errors import InvalidRequest, RequestError

PATH: Final = "/rerank"
"""TEI's path."""
COHERE_PATHS: Final[tuple[str, ...]] = ("/v1/rerank", "/v2/rerank")
PATHS: Final[tuple[str, ...]] = (PATH, *COHERE_PATHS)
_OF_TEI: Final = (
    *("model", "query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction"),
    # TEI takes members that it does not know, and LiteLLM sends it this one.
    "top_n",
)
_OF_COHERE: Final = (
    "model",
    "query",
    "documents",
    "top_n",
    "return_documents",
    "raw_scores",
    "truncate",
    "rank_fields",
    "max_tokens_per_doc",
    "max_chunks_per_doc",
    "priority",
)
_FIELDS: Final = ["text"]
"""The fields of a document object that count, if the body names no others."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """Request to rank texts by a query.

    Attributes:
        model: its name; empty if the body has none.
        given: the query with each of the texts.
        texts: in the order of the request.
        top: the number of best ones in the answer; 0 for all.
        raw: True for scores as the model gives them; else between 0 and 1.
        returns_texts: True for texts beside the scores.
        cohere: True for an answer in Cohere's form; else TEI's.
    """

    model: str
    given: GivenTexts
    texts: list[str]
    top: int
    raw: bool
    returns_texts: bool
    cohere: bool


def read(body: bytes | bytearray) -> Reranking:
    """Return the request in a body.

    Raises:
        InvalidRequest: with the value found and the right form.
    """
    found = parsed(body)
    of_cohere = "documents" in found
    if not of_cohere and "texts" not in found:
        raise InvalidRequest('"texts" is missing; it must be a list of texts ("documents" will do)')
    expect_members(found, _OF_COHERE if of_cohere else _OF_TEI)
    if found.get("truncation_direction") not in (None, "Right", "right"):
        raise InvalidRequest('"truncation_direction" is not supported; leave it out')
    query = optional(found, "query", str, "a text")
    if query is None:
        raise InvalidRequest('"query" is missing; it must be a text')
    texts = _documents(found) if of_cohere else required_texts(found, "texts")
    # Here a document is one chunk, which every allowed limit allows.
    optional_count(found, "max_chunks_per_doc")
    document_tokens = optional_count(found, "max_tokens_per_doc")
    wants_texts = "return_documents" if of_cohere else "return_text"
    truncate = optional(found, "truncate", bool, "true or false")
    return Reranking(
        model=optional(found, "model", str, "the name of a model") or "",
        given=GivenTexts([(query, text) for text in texts], (), truncate, document_tokens),
        texts=texts,
        top=optional_count(found, "top_n"),
        raw=bool(optional(found, "raw_scores", bool, "true or false")),
        returns_texts=bool(optional(found, wants_texts, bool, "true or false")),
        cohere=of_cohere,
    )


def _documents(found: dict[str, Any]) -> list[str]:
    """Return the texts of the documents, which are texts or objects.

    Some fields of an object count, in the order in which the body names them.
    """
    documents = found["documents"]
    fields = required_texts(found, "rank_fields") if found.get("rank_fields") else _FIELDS
    if isinstance(documents, list):
        documents = [_joined(one, fields) if isinstance(one, dict) else one for one in documents]
    return required_texts({"documents": documents}, "documents")


def _joined(document: dict[str, Any], fields: Sequence[str]) -> object:
    """Return the text of a document, or the document itself if none of its fields counts."""
    values = [document[name] for name in fields if document.get(name) is not None]
    if not values:
        return document
    return "\n".join(one if isinstance(one, str) else orjson.dumps(one).decode() for one in values)


class RerankingRendering:
    """Rendering of a reranking; `ringbatch.frontend.texts.offloaded_texts.TextsRendering` holds it.

    Args:
        asked: the request.
        model: the model's name in the answer.
    """

    def __init__(self, asked: Reranking, model: str) -> None:
        self._asked = asked
        self._model = model

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        asked = self._asked
        scores = np.concatenate([np.frombuffer(result, np.float32) for _, result in results])
        if not asked.raw:
            scores = each_between_0_and_1(scores)
        expect_finite(scores)
        best = np.argsort(-scores, kind="stable")[: asked.top or None].tolist()
        ranked = [self._entry(index, float(scores[index])) for index in best]
        answer: Any = ranked
        if asked.cohere:
            tokens = sum(asked.given.counts)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            answer = {
                "id": batch_id,
                "results": ranked,
                "meta": cohere.meta(2, {"search_units": 1}),
                "model": self._model,
                "usage": usage,
            }
        return 200, orjson.dumps(answer), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return cohere.refused(error) if self._asked.cohere else tei.refused(error)

    def _entry(self, index: int, score: float) -> dict[str, Any]:
        asked = self._asked
        found: dict[str, Any] = {"index": index}
        found["relevance_score" if asked.cohere else "score"] = score
        if asked.returns_texts:
            text = asked.texts[index]
            found |= {"document": {"text": text}} if asked.cohere else {"text": text}
        return found
