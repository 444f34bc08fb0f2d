"""Routing: requests that stay here, and requests that are passed on."""

from typing import Any

import pytest
from falcon.routing import CompiledRouter

from ringbatch.frontend.proxy.routing import has_route, is_for_sidecar, is_probe, is_ready_path


def scope(path: str, method: str = "GET", **headers: str) -> dict[str, Any]:
    found = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"path": path, "method": method, "headers": found}


class Resource:
    def on_get(self, _req: Any, _resp: Any) -> None:
        """Do nothing."""


@pytest.fixture
def ours() -> Any:
    router = CompiledRouter()
    for path in ("/", "/v1/models", "/docs", "/v2/models/stats"):
        router.add_route(path, Resource())
    for path in ("/v1/models/{name}", "/v1/models/{name}:predict", "/v1/models/{name}:explain"):
        router.add_route(path, Named())
    for path in ("/v2/models/{name}/infer", "/v2/systemsharedmemory/region/{name}/status"):
        router.add_route(path, Named())
    for path in ("/rerank", "/predict"):
        router.add_route(path, Resource())
    texts = {"/rerank": True, "/predict": False}

    def found(path: str) -> Any:
        return (router.find(path) or (0, 0, None))[2]

    return has_route(found, {"a", "b"}, {"a"}, texts.get)


class Named:
    def on_get(self, _req: Any, _resp: Any, name: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("/", True),
        ("/docs", True),
        ("/v1/models", True),
        ("/v1/models/a", True),
        ("/v1/models/b:predict", True),
        ("/v1/models/a:explain", False),
        ("/v1/models/c", False),
        ("/v1/models/c:predict", False),
        ("/v2/models/a/infer", True),
        ("/v2/models/b/infer", False),
        ("/v2/models/c/infer", False),
        ("/v2/models/stats", True),
        ("*", True),
        ("/v2/systemsharedmemory/region/c/status", True),
        ("/v1/models/a/metadata", False),
        ("/anything", False),
        ("/rerank", True),
        ("/predict", False),
    ],
)
def test_requests_for_our_models_stay_here(ours: Any, path: str, stays: bool) -> None:
    assert ours(scope(path)) is stays


@pytest.mark.parametrize(
    ("path", "method", "stays"),
    [
        ("/v1/models/a:predict", "POST", True),
        ("/v1/models/a/versions/2:predict", "POST", True),
        ("/v1/models/a:predict", "GET", False),
        ("/v1/models/a:explain", "POST", False),
        ("/v2/models/a/infer", "POST", False),
        ("/", "GET", False),
    ],
)
def test_as_a_sidecar_predictions_alone_stay(path: str, method: str, stays: bool) -> None:
    assert is_for_sidecar(scope(path, method)) is stays


@pytest.mark.parametrize(
    ("asked", "probe"),
    [
        (scope("/v2/health/ready"), True),
        (scope("/v2/health/ready", "HEAD"), True),
        (scope("/v2/health/ready", "POST"), False),
        (scope("/v2/health/live"), False),
        (scope("/any", user_agent="kube-probe/1.31"), True),
        (scope("/any", k_network_probe="queue"), True),
        (scope("/any", k_network_probe="probe"), True),
        (scope("/", user_agent="Knative-Activator-Probe"), True),
        (scope("/wait-for-drain"), False),
        (scope("/any", user_agent="curl/8 kube-probe/1.31"), False),
        (scope("/any", "POST", user_agent="kube-probe/1.31"), False),
    ],
)
def test_probes_are_known_by_their_path_or_their_name(asked: dict[str, Any], probe: bool) -> None:
    assert is_probe(asked) is probe


def test_beside_models_of_ours_a_path_alone_makes_a_probe() -> None:
    assert is_ready_path(scope("/v2/health/ready"))
    assert not is_ready_path(scope("/any", user_agent="kube-probe/1.31"))
