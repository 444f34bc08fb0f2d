"""Hints for unknown paths: the path of the same thing here, if other servers have one. Pure."""

import re
from typing import Final

_PREDICTIONS: Final = "predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer"
_TEXTS: Final = "of texts there are embeddings at /embed, reranking at /rerank, classes at /predict"
_CLASSES: Final = "classes of texts are here while a classifier of texts is served"
_BASE: Final = "give the client an address that ends with /v1: embeddings are at /v1/embeddings"
_BASE_OF_COHERE: Final = "give the client an address without a path: it adds /v1 or /v2 itself"
_NO_TEXT: Final = (
    "no model here writes text at this path; /v1/completions and /v1/chat/completions are there "
    "while a text generator is served"
)
_VERBS: Final = "predict|predictions|infer|inference|invocations|generate"
_ELSEWHERE: Final = (
    (r"/predict", f"{_PREDICTIONS}; {_CLASSES}"),
    (r"/metrics", "metrics are at the control address, where control_port is set"),
    (
        r"(/v[12])?/(health|healthz|livez?|readyz?|ping|status)(/.*)?",
        "health is at /v2/health/live and /v2/health/ready",
    ),
    (
        rf"(/v[12])?/({_VERBS})(/.*)?|/v[12]/models?/[^:]*/({_VERBS})/?|/v[12]/models?/.*:.*",
        _PREDICTIONS,
    ),
    (r"/v[12]/models/.*/metadata/?", "a model's metadata is at /v2/models/NAME"),
    (r"/v1/?|/models/?", "the models are listed at /v1/models and /v2/models"),
    (r"/(docs|redoc|openapi|swagger)([./].*)?", "the documentation is at /docs"),
    (
        r"/similarity|/embed_(all|sparse)|/tokenize|/decode|/v[12]/(classify|tokenize|detokenize)",
        _TEXTS,
    ),
    (r"(/v1)*/(chat/completions|completions|responses)|/v[12]/chat|/generate_stream", _NO_TEXT),
    (r"/v[12]/v[12]/(embed|rerank|chat|models)", _BASE_OF_COHERE),
    (
        r"/info|(/v[12])?/(embed|rerank)|/v1/embeddings",
        "it is there while a model of texts is served",
    ),
    (r"(/.*)?/embeddings", _BASE),
    (r"/.+/", "try it without the slash at the end"),
)
_KNOWN: Final = tuple((re.compile(path), words) for path, words in _ELSEWHERE)
_POSTED_TO: Final = re.compile(r"/|/v[12](/models(/[^/]*)?(/versions(/[^/]*)?)?)?/?")


def elsewhere(path: str) -> str:
    """Return a hint for a path without a resource; empty if there is none."""
    for known, words in _KNOWN:
        if known.fullmatch(path):
            return f"; {words}"
    return ""


def posted_elsewhere(path: str) -> str:
    """Return a hint for a path that takes no POST."""
    if path == "/":
        return f"; {_PREDICTIONS}; {_TEXTS}"
    return f"; {_PREDICTIONS}" if _POSTED_TO.fullmatch(path) else ""
