"""OpenAPI paths of embeddings, reranking, classification and completions. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from ringbatch.frontend.generation import completion_bodies
from ringbatch.frontend.texts import classifying, cohere, openai, reranking, tei
from ringbatch.shm.model_spec import ModelSpec

Json = dict[str, Any]

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": ["string", "null"]}
_DIRECTION: Final = {"enum": ["Right", "right", None]}
_WHOLE: Final = {"type": "integer", "minimum": 1}
_SWITCH: Final = {"type": ["boolean", "null"]}
_TOKENS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}

_MODEL: Final = "Which model, if several are of texts."
_INFO_PARAMETERS: Final = [{"name": "model", "in": "query", "description": _MODEL, "schema": _TEXT}]


def text_paths(models: Iterable[ModelSpec]) -> Json:
    """Return the paths of texts that models here serve."""
    models = tuple(models)
    texts = [spec for spec in models if spec.tokens is not None]
    found: Json = {}
    for spec in texts:
        if spec.outputs[0].name == "embedding":
            example = {"model": spec.name, "input": ["a text"]}
            described = _operation("Embeddings, as OpenAI has them", _embeddings(), example)
            found.setdefault(openai.PATH, described)
            example = {"model": spec.name, "inputs": "a text"}
            described = _operation("Embeddings, as TEI has them", _embed_of_tei(), example)
            found.setdefault(tei.EMBED, described)
            example = {"model": spec.name, "texts": ["a text"], "input_type": "search_query"}
            described = _operation("Embeddings, as Cohere has them", _embed_of_cohere(), example)
            for path in (cohere.EMBED_V1, cohere.EMBED_V2):
                found.setdefault(path, described)
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
    for spec in models:
        if spec.generator is not None:
            once: Json = {"model": spec.name, "prompt": "Once", "max_tokens": 16}
            described = _operation("Completions, as OpenAI has them", _completions(), once)
            found.setdefault(openai.COMPLETIONS, described)
            chat: Json = {"model": spec.name, "messages": [{"role": "user", "content": "Hi"}]}
            described = _operation("Chats, as OpenAI has them", _chats(), chat)
            found.setdefault(openai.CHAT_COMPLETIONS, described)
    if texts:
        found[tei.INFO] = _got("Facts about a model of texts, as TEI has them", _INFO_PARAMETERS)
        found[tei.HEALTH] = _got("Readiness, as TEI has it", [])
    return found


def _embeddings() -> Json:
    return {
        "model": _NAME,
        "input": _texts_or_tokens(),
        "encoding_format": {"enum": ["float", "base64", None]},
        "dimensions": {"anyOf": [_WHOLE, {"type": "null"}]},
        "user": {},
        "truncate": _SWITCH,
    }


def _texts_or_tokens() -> Json:
    several = [{"type": "array", "items": one, "minItems": 1} for one in (_TEXT, _TOKENS)]
    return {"anyOf": [_TEXT, _TOKENS, *several]}


def _embed_of_tei() -> Json:
    return {
        "model": _NAME,
        "inputs": _texts_or_tokens(),
        "normalize": _SWITCH,
        "dimensions": {"anyOf": [_WHOLE, {"type": "null"}]},
        "truncate": _SWITCH,
        "truncation_direction": _DIRECTION,
        "prompt_name": {"type": "null"},
    }


def _embed_of_cohere() -> Json:
    forms = {"type": "array", "items": {"enum": ["float", "base64"]}, "minItems": 1}
    return {
        "model": _NAME,
        "texts": {"type": "array", "items": _TEXT, "minItems": 1},
        "input_type": {"type": ["string", "null"]},
        "embedding_types": {"anyOf": [forms, {"type": "null"}]},
        "output_dimension": {"anyOf": [_WHOLE, {"type": "null"}]},
        "truncate": {"enum": ["NONE", "END", None]},
        "priority": {},
        **{name: {"type": "null"} for name in ("inputs", "images", "max_tokens")},
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


def _completions() -> Json:
    several = {
        "type": "array",
        "items": {"anyOf": [_TEXT, _TOKENS]},
        "minItems": 1,
        "maxItems": completion_bodies.MOST_CHOICES,
    }
    return _generation(completion_bodies.IN_COMPLETIONS) | {
        "prompt": {"anyOf": [_TEXT, _TOKENS, several]},
        "best_of": {"anyOf": [_WHOLE, {"type": "null"}]},
    }


def _chats() -> Json:
    part = {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": _TEXT},
        "required": ["type", "text"],
    }
    message = {
        "type": "object",
        "properties": {
            "role": _TEXT,
            "content": {"anyOf": [_TEXT, {"type": "array", "items": part}]},
            "name": _NAME,
        },
        "required": ["role", "content"],
    }
    return _generation(completion_bodies.IN_CHATS) | {
        "messages": {"type": "array", "items": message, "minItems": 1},
        "max_completion_tokens": {"anyOf": [_WHOLE, {"type": "null"}]},
    }


def _generation(members: Iterable[str]) -> Json:
    """Return the members of completions and chats; those that are left open ask for nothing."""
    stop = {"type": "string", "minLength": 1, "maxLength": completion_bodies.LONGEST_STOP}
    several = {"type": "array", "items": stop, "maxItems": completion_bodies.MOST_STOPS}
    usage = {"type": "object", "properties": {"include_usage": _SWITCH}}
    ranges = {
        name: {"type": ["number", "null"], "minimum": least, "maximum": most}
        for name, (least, most) in completion_bodies.RANGES.items()
    }
    known = {
        "model": _NAME,
        "max_tokens": {"anyOf": [_WHOLE, {"type": "null"}]},
        "stop": {"anyOf": [stop, several, {"type": "null"}]},
        "n": {"type": ["integer", "null"], "minimum": 1, "maximum": completion_bodies.MOST_CHOICES},
        "stream": _SWITCH,
        "stream_options": {"anyOf": [usage, {"type": "null"}]},
        "seed": {"type": ["integer", "null"]},
        **ranges,
    }
    asks_nothing = {
        name: {"enum": [None, *values]} for name, values in completion_bodies.NOT_HAD.items()
    }
    return {name: known.get(name, asks_nothing.get(name, {})) for name in members}


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


def _got(summary: str, parameters: list[Json]) -> Json:
    return {
        "get": {
            "tags": ["server"],
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "The answer."},
                "default": {"description": "Why there is none."},
            },
        }
    }
