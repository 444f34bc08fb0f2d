"""Where something is that other servers have at a path at which there is nothing here; pure."""

import re
from typing import Final

_PREDICTIONS: Final = "predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer"
_VERBS: Final = "predict|predictions|infer|inference|invocations|generate"
_ELSEWHERE: Final = (
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
    (r"/.+/", "try it without the slash at the end"),
)
_KNOWN: Final = tuple((re.compile(path), words) for path, words in _ELSEWHERE)
_POSTED_TO: Final = re.compile(r"/|/v[12](/models(/[^/]*)?(/versions(/[^/]*)?)?)?/?")


def elsewhere(path: str) -> str:
    """How to go on behind the words that nothing is at a path; empty where nobody can tell."""
    for known, words in _KNOWN:
        if known.fullmatch(path):
            return f"; {words}"
    return ""


def posted_elsewhere(path: str) -> str:
    """The same behind the words that nothing is posted to a path."""
    return f"; {_PREDICTIONS}" if _POSTED_TO.fullmatch(path) else ""
