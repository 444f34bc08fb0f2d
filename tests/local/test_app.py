"""Endpoints on Falcon, with a service whose answers are scripted."""

import asyncio
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from falcon.inspect import inspect_compiled_router, inspect_routes, register_router
from falcon.testing import TestClient
from scripted_app import MAX_REQUEST_BYTES, SINCE_S, ScriptedService, ask, client
from segment_fixture import spec

from ringbatch.engine.config.model_names import TAKEN_NAMES
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.falcon.openapi import document
from ringbatch.frontend.http.router import Router
from ringbatch.frontend.request.calls import Body, Reply
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.texts import classifying, cohere, openai, tei
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import Generator, Tokens

GOOD = {"id": "good", "object": "model", "created": SINCE_S, "owned_by": "ringbatch"}


class BrokenService(ScriptedService):
    """Service with a defect."""

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int,
        origin: bytes | None,
        account: int,
        in_parts: object,
    ) -> None:
        raise ZeroDivisionError("secret detail")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/", {"status": "alive"}),
        ("/v2/health/live", {"live": True}),
        (
            "/v1/models",
            {
                "models": ["good", "loading"],
                "object": "list",
                "data": [GOOD, GOOD | {"id": "loading"}],
            },
        ),
        ("/v1/models/good", {"name": "good", "ready": True, **GOOD}),
        ("/v1/models/good?a=b", {"name": "good", "ready": True, **GOOD}),
        ("/v1/models/good/versions/2", {"name": "good", "ready": True, **GOOD}),
    ],
)
def test_readable_paths_answer_json_and_head_has_no_body(path: str, answer: dict[str, Any]) -> None:
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
    service.stopping = True
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
def test_an_unanswerable_request_gets_a_json_error(method: str, path: str, status: int) -> None:
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
def test_a_wrong_method_gets_the_allowed_ones(method: str, path: str, allowed: str) -> None:
    got = ask(method, path)
    assert got.status_code == 405
    assert allowed in got.headers["allow"].split(", ")
    words = f"{method} is not allowed here; allowed: {got.headers['allow']}"
    assert got.json["error"].partition("; predictions are at")[0] == words


OF_TEXT_MODELS = (
    *(classifying.PATH, tei.EMBED, tei.INFO, tei.HEALTH),
    *(cohere.EMBED_V1, cohere.EMBED_V2, openai.COMPLETIONS, openai.CHAT_COMPLETIONS),
)
register_router(Router)(inspect_compiled_router)
ROUTES = [
    route.path
    for route in inspect_routes(create_app(ScriptedService(), MAX_REQUEST_BYTES))  # type: ignore[arg-type]
    if route.path not in OF_TEXT_MODELS
]


def test_no_model_can_have_the_name_of_another_path() -> None:
    before = {route.partition("{name}")[0] for route in ROUTES if "{name}" in route}
    beside = {
        route.removeprefix(start).partition("/")[0]
        for start in before
        for route in ROUTES
        if route.startswith(start)
    }
    assert {name for name in beside if "{" not in name} == TAKEN_NAMES - {".", ".."}


@pytest.mark.parametrize("route", ROUTES)
def test_options_and_a_refusal_show_the_same_methods(route: str) -> None:
    """All that is shown is taken, and nothing else."""
    path = route.format(name="good", version="1")
    shown = ask("OPTIONS", path)
    assert shown.status_code == 200
    methods = shown.headers["allow"].split(", ")
    for method in ("DELETE", "GET", "POST", "PUT", "PATCH", "TRACE"):
        if method not in methods:
            refused = ask(method, path, body=b"{}")
            assert (refused.status_code, refused.headers["allow"]) == (405, ", ".join(methods))
    for method in methods:
        assert ask(method, path, body=b"{}").status_code != 405


def test_a_prediction_without_a_model_gets_the_model_names() -> None:
    got = ask("POST", "/v1/models/:predict")
    assert got.status_code == 404
    assert got.json == {"error": "no "}  # what the service says of a model called ""


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "br"}, b"{}", 415),
        ({"Content-Encoding": "gzip"}, zlib.compress(b"{}"), 400),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"{}"), 200),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"x" * 101), 413),
        ({"Content-Encoding": "deflate"}, zlib.compress(b"{}") + bytes(100), 413),
        ({"Content-Type": "application/cloudevents+json"}, b"{}", 415),
        ({"Upgrade": "h2c"}, b"{}", 200),
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


@pytest.mark.parametrize(
    ("method", "path", "headers", "ended"),
    [
        ("GET", "/v2/health/live", {}, [(Protocol.HTTP, 200, "")]),
        ("GET", "/nowhere", {}, [(Protocol.HTTP, 404, "")]),
        ("POST", "/v1/models/good:predict", {}, [(Protocol.V1, 411, "good")]),
        (
            "POST",
            "/v1/models/good:predict",
            {"Content-Length": "999999"},
            [(Protocol.V1, 413, "good")],
        ),
        (
            "POST",
            "/v1/models/good/versions/2:predict",
            {"Content-Type": "application/cloudevents+json"},
            [(Protocol.V1, 415, "good/versions/2")],
        ),
        ("GET", "/v1/models/good:predict", {}, [(Protocol.V1, 405, "good")]),
        ("GET", "/v2/models/good/infer", {}, [(Protocol.V2, 405, "good")]),
        (
            "POST",
            "/v2/models/good/infer",
            {"Inference-Header-Content-Length": "x"},
            [(Protocol.V2_BINARY, 400, "good")],
        ),
        # A route ends at a line break.
        ("POST", "/v1/models/go\nod:predict", {}, [(Protocol.V1, 404, "")]),
        # These come to the pipeline, which counts them itself.
        ("POST", "/v1/models/good:predict", {"Content-Length": "0"}, []),
    ],
)
def test_requests_that_never_reach_the_pipeline_are_counted_here(
    method: str, path: str, headers: dict[str, str], ended: list[tuple[Protocol, int, str]]
) -> None:
    service = ScriptedService()
    client(service).simulate_request(method, path, headers=headers)
    assert service.ended == ended


def test_a_defect_is_counted_with_the_status_of_its_answer() -> None:
    service = BrokenService()
    client(service).simulate_post("/v1/models/good:predict", body=b"{}")
    assert service.ended == [(Protocol.V1, 500, "good")]


def test_a_client_without_a_key_is_counted_for_no_model() -> None:
    service = ScriptedService()
    unchecked: Any = service
    app = create_app(unchecked, MAX_REQUEST_BYTES, keys=ApiKeys({}))
    TestClient(app).simulate_post("/v1/models/good:predict", body=b"{}")
    assert service.ended == [(Protocol.HTTP, 401, "")]


def is_described(path: str) -> bool:
    """Return whether the document describes a path.

    It leaves out other spellings, and paths that answer nothing or 501.
    """
    return path not in ("/v2/", "/v1/models/{name}:explain") and "/cudasharedmemory/" not in path


def of_model_m(path: str) -> str:
    """Return the path of the model "m" as the document has it.

    There each model has paths of its own; those of its versions are in its text.
    """
    if not path.startswith(("/v1/models/", "/v2/models/")):
        return path
    return path.replace("{name}", "m").replace("/versions/{version}", "")


def test_the_document_has_every_route_and_no_other() -> None:
    app = create_app(ScriptedService(), MAX_REQUEST_BYTES)  # type: ignore[arg-type]
    routes = {
        (method.method.lower(), of_model_m(route.path))
        for route in inspect_routes(app)
        for method in route.methods
        if method.function_name in ("on_get", "on_post")
        and method.function_name.endswith(method.method.lower())
        and is_described(route.path)
    }
    assert len(routes) > 20
    # This route only refuses POST to a model itself, with an error text.
    routes.remove(("post", "/v1/models/m"))
    tokens, text = Tokens("", "", 1, True, False, 1), [Tensor("text", "BYTES", [])]
    models = [
        replace(spec(index, text, [Tensor(output, "FP32", [1])]), tokens=tokens)
        for index, output in enumerate(("embedding", "score", classifying.OUTPUT))
    ]
    tokens_in, tokens_out = [Tensor("input_ids", "INT64", [-1])], [Tensor("t", "INT64", [-1])]
    generator = replace(spec(3, tokens_in, tokens_out), generator=Generator("", "", 1, 1, ()))
    models.append(generator)
    described = document(models, "1", shared_memory=True, model_control=True)
    operations = {
        (method, path)
        for path, methods in described["paths"].items()
        for method in methods
        if method != "parameters"
    }
    assert operations == routes


def test_while_a_body_is_expanded_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, sleep = [], asyncio.sleep

    async def noted(delay: float, *more: Any) -> None:
        turns.append(delay)
        await sleep(delay, *more)

    monkeypatch.setattr(asyncio, "sleep", noted)
    app = create_app(ScriptedService(), 1 << 24)  # type: ignore[arg-type]
    TestClient(app).simulate_post(
        "/v1/models/good:predict",
        headers={"Content-Encoding": "deflate"},
        body=zlib.compress(bytes(1 << 24)),
    )
    assert len(turns) >= 15
