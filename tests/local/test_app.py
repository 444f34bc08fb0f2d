"""Every endpoint on Falcon, with a service whose answers are scripted."""

import asyncio
import zlib
from typing import Any

import orjson
import pytest
from falcon.testing import Result, TestClient
from rig import local_segment, spec

from ringbatch.frontend.app import create_app
from ringbatch.frontend.calls import Body, Reply
from ringbatch.frontend.forwarded import Origins
from ringbatch.frontend.outcome import JSON, outcome
from ringbatch.frontend.regions import NOTHING_SHARED, Regions
from ringbatch.shm.errors import Draining, ModelNotFound, ModelNotReady
from ringbatch.shm.registry import Registry

MAX_REQUEST_BYTES = 100


class ScriptedService:
    """Knows two models, `good` and one that is not ready; echoes the size of a body."""

    models = ("good", "loading")
    regions = Regions(Registry.attach(local_segment(spec())), NOTHING_SHARED)
    specs = ()
    origins = Origins(())
    draining = False
    model_control = False

    def check(self, name: str, version: str = "") -> None:
        if name == "loading":
            raise ModelNotReady("still loading")
        if name != "good" or version not in ("", "2"):
            raise ModelNotFound(f"no {name}")

    def expect_ready(self) -> None:
        if self.draining:
            raise Draining
        for name in self.models:
            self.check(name)

    def predict(
        self, name: str, body: Body, reply: Reply, timeout_ns: int, origin: bytes | None
    ) -> None:
        name, _, version = name.partition("/versions/")
        try:
            self.check(name, version)
        except (ModelNotFound, ModelNotReady) as error:
            reply(*outcome(error))
        else:
            later = asyncio.get_running_loop().call_soon
            later(reply, 200, b'{"echo":%d}' % len(body), JSON)


class BrokenService(ScriptedService):
    """Has a defect."""

    def predict(
        self, name: str, body: Body, reply: Reply, timeout_ns: int, origin: bytes | None
    ) -> None:
        raise ZeroDivisionError("secret detail")


def client(service: Any) -> TestClient:
    return TestClient(create_app(service, MAX_REQUEST_BYTES))


def ask(method: str, path: str, **options: Any) -> Result:
    return client(ScriptedService()).simulate_request(method, path, **options)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/", {"status": "alive"}),
        ("/v2/health/live", {"live": True}),
        ("/v1/models", {"models": ["good", "loading"]}),
        ("/v1/models/good", {"name": "good", "ready": True}),
        ("/v1/models/good?a=b", {"name": "good", "ready": True}),
        ("/v1/models/good/versions/2", {"name": "good", "ready": True}),
    ],
)
def test_what_can_be_read_is_json_and_head_is_the_same_without_a_body(
    path: str, answer: dict[str, Any]
) -> None:
    path, _, query = path.partition("?")
    got = ask("GET", path, query_string=query)
    assert (got.status_code, got.json) == (200, answer)
    assert got.headers["content-type"] == "application/json"
    head = ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(got.content))


def test_ready_means_that_every_model_is() -> None:
    service = ScriptedService()
    got = client(service).simulate_get("/v2/health/ready")
    assert (got.status_code, got.json) == (503, {"error": "still loading"})
    service.models = ("good",)  # type: ignore[assignment]
    got = client(service).simulate_get("/v2/health/ready")
    assert (got.status_code, got.json) == (200, {"ready": True})
    service.draining = True
    assert client(service).simulate_get("/v2/health/ready").status_code == 503


@pytest.mark.parametrize("path", ["/v1/models/good:predict", "/v1/models/good%3Apredict"])
def test_a_prediction_is_answered_by_the_service(path: str) -> None:
    got = ask("POST", path, body=b"12345")
    assert (got.status_code, got.json) == (200, {"echo": 5})
    assert got.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/nope", 404),
        ("GET", "/v1/models/loading", 503),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/good/", 404),
        ("GET", "/nothing%20here", 404),
        ("GET", "/" + "a" * 5000, 404),
        ("POST", "/v1/models/nope:predict", 404),
        ("POST", "/v1/models/a:b:predict", 404),
        ("POST", "/v1/models/loading:predict", 503),
        ("POST", "/v1/models/good:predict/", 404),
        ("POST", "/v1/models/good:other", 404),
        ("POST", "/v1/models/good/versions/1:predict", 404),
        ("POST", "/v1/models/good:explain", 501),
        ("POST", "/v1/models/nope:explain", 404),
    ],
)
def test_what_cannot_be_had_is_a_json_error(method: str, path: str, status: int) -> None:
    got = ask(method, path, body=b"{}" if method == "POST" else None)
    assert got.status_code == status
    assert list(got.json) == ["error"]
    assert len(got.json["error"]) < 300


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/models/good:predict", "POST"),
        ("PUT", "/v1/models/good:predict", "POST"),
        ("DELETE", "/v1/models/good", "GET"),
        ("POST", "/v1/models/good", "GET"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/", "GET"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    got = ask(method, path)
    assert got.status_code == 405
    assert allowed in got.headers["allow"].split(", ")
    assert got.json == {"error": f"{method} is not allowed here; allowed: {got.headers['allow']}"}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "br"}, b"{}", 415),
        ({"Content-Encoding": "gzip"}, zlib.compress(b"{}"), 400),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"{}"), 200),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"x" * 101), 413),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"{}") + bytes(100), 413),
        ({"Content-Type": "application/cloudevents+json"}, b"{}", 415),
        ({"Upgrade": "h2c"}, b"{}", 400),
        ({"Content-Length": "101"}, b"x" * 101, 413),
        ({"Transfer-Encoding": "chunked"}, b"x" * 101, 413),
        ({"Transfer-Encoding": "chunked"}, b"x" * 100, 200),
        ({"Content-Length": "100"}, b"x" * 100, 200),
        ({"Content-Encoding": "Identity"}, b"{}", 200),
    ],
)
def test_a_body_that_cannot_be_taken_is_refused(
    headers: dict[str, str], body: bytes, status: int
) -> None:
    got = ask("POST", "/v1/models/good:predict", headers=headers, body=body)
    assert got.status_code == status
    assert (list(got.json) == ["error"]) == (status != 200)
    assert ("accept-encoding" in got.headers) == (status == 415)


def test_a_post_without_any_body_is_asked_for_its_length() -> None:
    assert ask("POST", "/v1/models/good:predict").status_code == 411


def test_a_defect_is_an_internal_error_whose_details_stay_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got = client(BrokenService()).simulate_post("/v1/models/good:predict", body=b"{}")
    assert got.status_code == 500
    assert orjson.loads(got.content) == {"error": "internal error"}
    assert "secret detail" in caplog.text
