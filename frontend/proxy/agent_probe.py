"""The readiness probe that KServe gives its agent for the model server. Pure.

KServe copies the server's own probe, as JSON, into ``SERVING_READINESS_PROBE``, and the agent asks
by it if a probe of Kubernetes or Knative asks the agent.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

VARIABLE: Final = "SERVING_READINESS_PROBE"
READY_PATH: Final = "/v2/health/ready"
_NO_SUCH_PATH: Final = (404, 405, 501)
_FAILURES: Final = 400


class Question(NamedTuple):
    """Form of the readiness probe of the model server.

    Attributes:
        path: for a GET.
        strict: True if every status from 400 on means that it is not ready. If
            not, a server that does not know the path is ready.
        connects: True if an answer of any status is enough.
    """

    path: str = READY_PATH
    strict: bool = False
    connects: bool = False

    def is_ready(self, status: int) -> bool:
        """Return whether a server that answers with a status is ready."""
        if status < _FAILURES or self.connects:
            return True
        return not self.strict and status in _NO_SUCH_PATH


def question(environment: Mapping[str, str]) -> Question:
    """Return the question of the probe in an environment.

    Without one, or with a probe of another kind than HTTP and TCP, it is the default.
    """
    try:
        probe: Any = orjson.loads(environment.get(VARIABLE, ""))
    except orjson.JSONDecodeError:
        return Question()
    if not isinstance(probe, dict):
        return Question()
    if isinstance(probe.get("tcpSocket"), dict):
        return Question(connects=True)
    asked = probe.get("httpGet")
    if not isinstance(asked, dict):
        return Question()
    path = asked.get("path")
    if not isinstance(path, str) or not path.isascii() or not path.isprintable() or " " in path:
        path = ""
    return Question(f"/{path.removeprefix('/')}", strict=True)
