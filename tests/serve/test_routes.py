"""An application of the user's own in the frontends: Starlette's, FastAPI's, Falcon's, and one by
hand."""

import http.client
import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve.client import Closed, Connection, Response, assert_serves, request
from serve.secure import KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]
APPLICATION: Final = str(Path(__file__).with_name("applications") / "api:app")
MODELS: Final = {
    "matmul": {"path": "matmul.py"},
    "echo": {"path": "slow.py"},
    "nap": {"path": "slow.py"},
}
EACH: Final = sum(number % 7 for number in range(160))
"""Sum of what the model `matmul` answers to a row of ones."""


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(MODELS, app=APPLICATION, control_port=0)


def test_frontends_with_an_application_lead_a_session(server: Server) -> None:
    """It is other people's code: what it starts and gives another process group is found so."""
    frontends = {t: pid for t, pid in server.titles().items() if t.startswith("ringbatch: fronte")}
    assert len(frontends) > 1
    assert set(map(os.getsid, frontends.values())) == {frontends["ringbatch: frontends"]}


def ask(server: Server, path: str, value: Any = None, **headers: str) -> Response:
    body = None if value is None else json.dumps(value).encode()
    lines = {name.replace("_", "-"): text for name, text in headers.items()}
    lines |= {"Content-Type": "application/json"} if body is not None else {}
    method = "GET" if body is None else "POST"
    with Connection(server.port) as connection:
        return connection.ask(request(path, body, method=method, headers=lines))


def counted(server: Server, name: str, **labels: str) -> float:
    with closing(http.client.HTTPConnection("127.0.0.1", server.control_port)) as control:
        control.request("GET", "/metrics")
        text = control.getresponse().read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_a_route_runs_a_model_through_the_frontends_own_lane(server: Server) -> None:
    before = counted(server, "ringbatch_requests_total", model="matmul", protocol="client")
    ones = [[1.0] * 16]
    (expected,) = ask(server, "/sums", ones).json
    assert expected == EACH
    many = ask(server, "/sums", [[float(row)] * 16 for row in range(70)])
    assert many.json == [row * expected for row in range(70)], "more rows than a batch has"
    assert ask(server, "/threaded", ones[0]).json == expected
    after = counted(server, "ringbatch_requests_total", model="matmul", protocol="client")
    assert after - before == 3


def test_models_paths_stay_ringbatchs_and_all_others_are_the_applications(server: Server) -> None:
    assert_serves(server.port)
    assert ask(server, "/v2/health/ready").json == {"ready": True}
    assert ask(server, "/v1/models").json["models"] == [*MODELS]
    assert sorted(ask(server, "/names").json) == ["echo", "matmul", "nap"]
    assert ask(server, "/v2/nothing").error == 'nothing is at "/v2/nothing"'
    assert ask(server, "/nothing").body == b"Not Found"


def test_a_models_refusal_is_answered_as_ringbatch_answers_it(
    server: Server, wait_until: WaitUntil
) -> None:
    wrong = ask(server, "/sums", [[1.0] * 3])
    assert (wrong.status, wrong.error.split(",")[0]) == (400, 'input "x" has shape [1')
    assert ask(server, "/unknown").status == 404
    late = ask(server, "/naps?timeout_s=0.05")
    assert (late.status, late.error) == (504, "no answer came within the 0.05 s it asked for")
    defect = ask(server, "/defect")
    assert (defect.status, defect.body) == (500, b"Internal Server Error")
    wait_until(lambda: "ValueError: of the application" in server.stderr, "its traceback")


def test_models_are_awaited_in_the_frontends_event_loop_alone(server: Server) -> None:
    words = ask(server, "/elsewhere", {}).json
    assert words.startswith("StartupError: models.infer must be awaited in the frontend's own")


def test_an_answer_is_streamed_while_the_models_run(server: Server) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("GET", "/stream")
        answer = connection.getresponse()
        assert (answer.headers["transfer-encoding"], answer.read()) == ("chunked", b"012")


def test_the_applications_own_cors_is_asked(server: Server) -> None:
    asked = {"Origin": "https://page.test", "Access-Control-Request-Method": "POST"}
    with Connection(server.port) as connection:
        preflight = connection.ask(request("/sums", method="OPTIONS", headers=asked))
        assert preflight.headers["access-control-allow-origin"] == "https://page.test"


def test_a_client_that_leaves_amid_its_upload_is_no_failure_of_the_application(
    server: Server, wait_until: WaitUntil
) -> None:
    def ends(code: str) -> float:
        return counted(server, "ringbatch_requests_total", protocol="http", code=code)

    failed, gone = ends("500"), ends("499")
    with Connection(server.port) as connection:
        connection.send(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n[[1")
        wait_until(lambda: ask(server, "/uploads").json, "the application reads it")
    wait_until(lambda: ends("499") == gone + 1, "it counts as a client that has gone")
    assert ends("500") == failed


def test_requests_of_the_application_have_ids_and_are_counted(server: Server) -> None:
    before = counted(server, "ringbatch_requests_total", protocol="http", code="404")
    answer = ask(server, "/nothing", x_request_id="of-the-test")
    assert answer.headers["x-request-id"] == "of-the-test"
    after = counted(server, "ringbatch_requests_total", protocol="http", code="404")
    assert after - before == 1


def test_a_client_that_leaves_takes_nothing_with_it(server: Server, wait_until: WaitUntil) -> None:
    with Connection(server.port) as connection:
        connection.send(request("/naps?timeout_s=1", method="GET"))
    assert ask(server, "/sums", [[0.0] * 16]).json == [0.0]
    wait_until(lambda: counted(server, "ringbatch_in_flight_requests") == 0, "an empty lane")


@exhaustive
def test_an_application_starts_before_and_stops_after_all_its_requests(
    start: Start, tmp_path: Path
) -> None:
    keys = write_private(tmp_path / "keys", f"{KEY}\n")
    server = start(MODELS, app=APPLICATION, api_keys_file=str(keys))
    assert ask(server, "/names").status == 401, "keys guard the application too"
    preflight = {"Origin": "https://page.test", "Access-Control-Request-Method": "POST"}
    for path, headers, status in (
        ("/sums", preflight, 200),
        ("/sums", {}, 401),
        ("/v2/models", preflight, 401),
    ):
        with Connection(server.port) as connection:
            asked = request(path, method="OPTIONS", headers=headers)
            assert connection.ask(asked).status == status, "browsers send no key with that"
    assert ask(server, "/", **bearer(KEY)).json == "started"
    server.process.terminate()
    assert server.process.wait() == 0
    assert server.config.with_name("stopped").read_text() == "stopped"


WITH_FASTAPI = """
import anyio.from_thread
import numpy as np
from fastapi import FastAPI
from ringbatch.frontend import models

app = FastAPI()

@app.post("/sums")
async def sums(rows: list[list[float]]) -> list[float]:
    y = await models.infer("matmul", np.array(rows, np.float32))
    return [float(row.sum()) for row in y]

@app.post("/threaded")
def threaded(row: list[float]) -> float:
    x = np.array([row], np.float32)
    return float(anyio.from_thread.run(models.infer, "matmul", x).sum())
"""


@exhaustive
def test_fastapis_routes_and_pages_are_served(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    (tmp_path / "own.py").write_text(WITH_FASTAPI)
    server = start(MODELS, app=f"{tmp_path}/own:app")
    (expected,) = ask(server, "/sums", [[1.0] * 16]).json
    assert ask(server, "/threaded", [1.0] * 16).json == expected == EACH
    assert ask(server, "/v1/models").json["models"] == [*MODELS]
    assert ask(server, "/nothing").json == {"detail": "Not Found"}
    assert "/sums" in ask(server, "/openapi.json").json["paths"]
    assert b"swagger" in ask(server, "/docs").body


BARE = """
import falcon.asgi
from ringbatch.frontend import models

class Sums:
    async def on_get(self, _req, resp):
        resp.media = await models.infer("echo", [resp.context.doc])

class Doc:
    async def process_request(self, req, resp):
        resp.context.doc = req.path

app = falcon.asgi.App(middleware=[Doc()])
app.add_route("/falcon", Sums())

async def bare(scope, receive, send):
    if scope["path"] == "/model":
        await models.infer("nobody", [1])
    if scope["path"] == "/late":
        size = (b"content-length", b"2")
        await send({"type": "http.response.start", "status": 200, "headers": [size]})
    raise KeyError("secret detail")
"""


@exhaustive
@pytest.mark.parametrize("name", ["app", "bare"])
def test_applications_of_other_makes_are_served(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(BARE)
    server = start(MODELS, app=f"{tmp_path}/own:{name}")
    if name == "app":
        assert ask(server, "/falcon").json == ["/falcon"]
        return
    with pytest.raises(Closed, match="200 OK"):
        ask(server, "/late")
    refused = ask(server, "/model")
    assert (refused.status, refused.error.split(";")[0]) == (
        404,
        'Request for unknown model: there is no model "nobody"',
    )
    assert (ask(server, "/").status, ask(server, "/").error) == (500, "internal error")
    assert "KeyError: 'secret detail'" in server.stderr
    assert ask(server, "/a%0A1970-01-01%20forged").status == 500
    assert r"GET /a\x0a1970-01-01 forged failed" in server.stderr
