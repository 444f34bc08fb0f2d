"""What the OpenAPI document says of embeddings, reranking and classification; pure."""

from collections.abc import Iterable
from typing import Any, Final

from ringbatch.frontend.texts import classifying, openai, reranking
from ringbatch.shm.model_spec import ModelSpec

Json = dict[str, Any]

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": ["string", "null"]}
_DIRECTION: Final = {"enum": ["Right", "right", None]}
_WHOLE: Final = {"type": "integer", "minimum": 1}
_SWITCH: Final = {"type": ["boolean", "null"]}
_TOKENS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}


def text_paths(models: Iterable[ModelSpec]) -> Json:
    """The paths of embeddings, reranking and classification, where there are models for them."""
    texts = [spec for spec in models if spec.tokens is not None]
    found: Json = {}
    for spec in texts:
        if spec.outputs[0].name == "embedding":
            example = {"model": spec.name, "input": ["a text"]}
            described = _operation("Embeddings, as OpenAI has them", _embeddings(), example)
            found.setdefault(openai.PATH, described)
        elif spec.outputs[0].name == "score":
            example = {"model": spec.name, "query": "a question", "texts": ["an answer"]}
            summary = "Reranking, as TEI and Cohere have it"
            described = _operation(summary, _reranking(), example)
            for path in reranking.PATHS:
                found.setdefault(path, described)
        elif spec.outputs[0].name == classifying.OUTPUT:
            example = {"model": spec.name, "inputs": "a text"}
            described = _operation("Classes, as TEI has them", _classifying(), example)
            found.setdefault(classifying.PATH, described)
    return found


def _embeddings() -> Json:
    several = [{"type": "array", "items": one, "minItems": 1} for one in (_TEXT, _TOKENS)]
    return {
        "model": _NAME,
        "input": {"anyOf": [_TEXT, _TOKENS, *several]},
        "encoding_format": {"enum": ["float", "base64", None]},
        "dimensions": {"anyOf": [_WHOLE, {"type": "null"}]},
        "user": {},
        "truncate": _SWITCH,
    }


def _reranking() -> Json:
    return {
        "model": _NAME,
        "query": _TEXT,
        "texts": {"type": "array", "items": _TEXT, "minItems": 1},
        "documents": {"type": "array", "minItems": 1},
        "top_n": {"anyOf": [_WHOLE, {"type": "null"}]},
        "raw_scores": _SWITCH,
        "return_text": _SWITCH,
        "return_documents": _SWITCH,
        "truncate": _SWITCH,
        "truncation_direction": _DIRECTION,
        "rank_fields": {"anyOf": [{"type": "array", "items": _TEXT}, {"type": "null"}]},
        "max_tokens_per_doc": {"anyOf": [_WHOLE, {"type": "null"}]},
        "max_chunks_per_doc": {"anyOf": [_WHOLE, {"type": "null"}]},
        "priority": {},
    }


def _classifying() -> Json:
    alone = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1}
    several = {"type": "array", "items": {"anyOf": [_TEXT, alone]}, "minItems": 1}
    return {
        "model": _NAME,
        "inputs": {"anyOf": [_TEXT, several]},
        "raw_scores": _SWITCH,
        "truncate": _SWITCH,
        "truncation_direction": _DIRECTION,
        "parameters": {
            "type": ["object", "null"],
            "properties": {
                "top_k": {"anyOf": [_WHOLE, {"type": "null"}]},
                "function_to_apply": {"enum": [*classifying.FUNCTIONS, None]},
            },
            "additionalProperties": False,
        },
    }


def _operation(summary: str, properties: Json, example: Json) -> Json:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    content = {"application/json": {"schema": schema, "example": example}}
    answer = {"description": "The answer.", "content": {"application/json": {"schema": {}}}}
    refusal = {"description": "Why there is none.", "content": {"application/json": {"schema": {}}}}
    return {
        "post": {
            "tags": ["server"],
            "summary": summary,
            "requestBody": {"required": True, "content": content},
            "responses": {"200": answer, "default": refusal},
        }
    }
