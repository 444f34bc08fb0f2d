"""Routing of requests to this server or to the one that all others are passed on to. Pure.

Beside a model of ours, its paths and our documents are ours. As a sidecar in front of
another server, only predictions and the readiness probe are.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

PREDICT: Final = ":predict"
EXPLAIN: Final = ":explain"
READY: Final = "/v2/health/ready"
SERVER: Final = "*"
"""The target of an OPTIONS that is about no path."""
_V1_MODELS: Final = "/v1/models/"
_V2_MODELS: Final = ("/v2/models/", "/v2/repository/models/")
_READ: Final = ("GET", "HEAD")
_PROBES: Final = (b"kube-probe/", b"Knative-Activator-Probe")
_PROBE_HEADERS: Final = (b"k-kubelet-probe", b"k-network-probe")

Find = Callable[[str], Mapping[str, str] | None]
"""The parameters of the route that a path has; None if it has none."""


def is_probe(scope: Mapping[str, Any]) -> bool:
    """Return whether a request only asks if requests can be answered.

    The name of Kubernetes' own probes tells them, on any path, as in KServe's agent.
    """
    if scope["method"] not in _READ:
        return False
    return scope["path"] == READY or any(
        (name == b"user-agent" and value.startswith(_PROBES)) or name in _PROBE_HEADERS
        for name, value in scope["headers"]
    )


def is_ready_path(scope: Mapping[str, Any]) -> bool:
    """Return the same if other paths have answers of their own."""
    return bool(scope["method"] in _READ and scope["path"] == READY)


def is_for_sidecar(scope: Mapping[str, Any]) -> bool:
    """Return whether a request is for predictions of any model, or about this server alone."""
    path = scope["path"]
    return bool(path == SERVER or (scope["method"] == "POST" and path.endswith(PREDICT)))


def has_route(
    find: Find,
    models: Collection[str],
    v2_models: Collection[str],
    serves_texts_at: Callable[[str], bool | None],
) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that tells if a request is for a path of ours.

    Args:
        find: knows our routes.
        models: the names of ours.
        v2_models: of those that V2 serves.
        serves_texts_at: whether a path about texts is served; None of every other.
    """

    def ours(scope: Mapping[str, Any]) -> bool:
        path = scope["path"]
        if path == SERVER:
            return True
        if (of_texts := serves_texts_at(path)) is not None:
            return of_texts
        parameters = find(path)
        if parameters is None or path.endswith(EXPLAIN):
            return False
        if path.startswith(_V1_MODELS):
            name = parameters["name"]
            return name in models or name.rpartition(":")[0] in models
        if path.startswith(_V2_MODELS):
            return "name" not in parameters or parameters["name"] in v2_models
        return True

    return ours
