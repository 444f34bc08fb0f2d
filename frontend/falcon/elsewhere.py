"""Where something is that other servers have at a path at which there is nothing here; pure."""

import re
from typing import Final

_ELSEWHERE: Final = (
    (r"/metrics", "metrics are at the control address, where control_port is set"),
    (
        r"/(healthz?|livez?|readyz?|ping|status)",
        "health is at /v2/health/live and /v2/health/ready",
    ),
    (
        r"/(predict|predictions|infer|invocations|inference)(/.*)?|/v1/models/[^:]*/predict",
        "predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer",
    ),
    (r"/(docs|redoc|openapi|swagger)([./].*)?", "the documentation is at /docs"),
)
_KNOWN: Final = tuple((re.compile(path), words) for path, words in _ELSEWHERE)


def elsewhere(path: str) -> str:
    """How to go on behind the words that nothing is at a path; empty where nobody can tell."""
    for known, words in _KNOWN:
        if known.fullmatch(path):
            return f"; {words}"
    return ""
