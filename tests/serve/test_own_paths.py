"""Access to ringbatch's own paths beside an application, over every protocol.

These are HTTP/1.1 on the fast lane and on Falcon, HTTP/2, and gRPC.
"""

import http.client
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import grpc_port
from serve.secure import KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., Any]
GUARDED: Final = str(Path(__file__).with_name("applications") / "guarded:app")
TOKEN: Final = {"X-Token": "of-the-application"}
MODELS: Final = {"echo": {"path": "slow.py"}, "matmul": {"path": "matmul.py"}}
WARNING: Final = "does not guard /v1/models and /v2"
ASKED: Final = {
    "fast": ("POST", "/v1/models/echo:predict"),
    "encoded": ("POST", "/v1/models/echo%3Apredict"),
    "infer": ("POST", "/v2/models/matmul/infer"),
    "list": ("GET", "/v1/models"),
    "metadata": ("GET", "/v2"),
    "statistics": ("GET", "/v2/models/stats"),
    "health-in-disguise": ("GET", "/v2/health/live/"),
}
BODY: Final = {
    "/infer": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [1] * 16}]},
    "predict": {"instances": [1]},
}
ROUNDS: Final = 3


def asked(server: Server, case: str, headers: dict[str, str], *, http2: bool) -> list[int]:
    """The statuses of some requests of one kind, on one connection."""
    method, path = ASKED[case]
    sent = next((b for end, b in BODY.items() if path.endswith(end)), None)
    with httpx.Client(http1=not http2, http2=http2, timeout=60, verify=False) as client:
        url = f"http://127.0.0.1:{server.port}{path}"
        return [
            client.request(method, url, json=sent, headers=headers).status_code
            for _ in range(ROUNDS)
        ]


def requests_counted(server: Server) -> float:
    with closing(http.client.HTTPConnection("127.0.0.1", server.control_port)) as control:
        control.request("GET", "/metrics")
        text = control.getresponse().read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "ringbatch_requests_total"
    )


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        MODELS, app=GUARDED, own_paths="app", http2=True, grpc_port=0, control_port=0
    )


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("case", ASKED)
def test_the_application_decides_about_every_path(server: Server, case: str, http2: bool) -> None:
    assert asked(server, case, {}, http2=http2) == [403] * ROUNDS
    assert asked(server, case, {"X-API-Key": "any"}, http2=http2) == [403] * ROUNDS
    served = asked(server, case, TOKEN, http2=http2)
    assert served == [404 if case == "health-in-disguise" else 200] * ROUNDS
    assert asked(server, case, {}, http2=http2) == [403] * ROUNDS, "nothing was remembered"


@pytest.mark.parametrize("http2", [False, True])
def test_no_path_that_is_described_is_open_but_those_of_health(server: Server, http2: bool) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with httpx.Client(http1=not http2, http2=http2, base_url=url, verify=False) as client:
        paths = client.get("/below/openapi.json", headers=TOKEN).json()["paths"]
        for path, methods in paths.items():
            for method in {"get", "post"} & methods.keys():
                answer = client.request(method, path, json={} if method == "post" else None)
                assert (answer.status_code == 403) is ("/health/" not in path), path
    assert len(paths) > 10


def test_heads_of_before_are_asked_about_again_on_one_connection(server: Server) -> None:
    body = instances(1)
    with Connection(server.port) as connection:
        refused, taken = fast("echo", body), request(ASKED["fast"][1], body, headers=TOKEN)
        statuses = [connection.ask(data).status for data in (refused, taken, taken, refused)]
    assert statuses == [403, 200, 200, 403]


def test_answers_are_those_without_an_application_and_each_is_counted_once(
    server: Server,
) -> None:
    before = requests_counted(server)
    with Connection(server.port) as connection:
        got = connection.ask(request(ASKED["fast"][1], instances(2), headers=TOKEN))
        assert (got.status, got.json["predictions"]) == (200, [2])
        for path in ("/below/v1/models", "/v1/models"):
            listed = connection.ask(request(path, method="GET", headers=TOKEN))
            assert listed.json["models"] == [*MODELS]
        unknown = connection.ask(request("/v1/models/none:predict", b"{}", headers=TOKEN))
        assert (unknown.status, "there is no model" in unknown.error) == (404, True)
        assert connection.ask(request("/", method="GET", headers=TOKEN)).json == "welcome"
        assert connection.ask(request("/", method="GET")).status == 403
    assert requests_counted(server) - before == 6


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
def test_health_is_shown_to_everybody(server: Server, path: str) -> None:
    with Connection(server.port) as connection:
        assert connection.ask(request(path, method="GET")).status == 200


def test_grpc_is_not_the_applications_and_the_start_says_so(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(server)}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
        assert b"ringbatch" in call(b"")
    assert "own_paths does not hold for gRPC" in server.stderr
    assert WARNING not in server.stderr


@exhaustive
def test_paths_that_are_off_are_nobodys(start: Start) -> None:
    server = start(MODELS, app=GUARDED, own_paths="off", http2=True)
    for http2 in (False, True):
        for case in ASKED:
            assert asked(server, case, {}, http2=http2) == [403] * ROUNDS
            assert asked(server, case, TOKEN, http2=http2) == [404] * ROUNDS
    with Connection(server.port) as connection:
        off = connection.ask(request("/v1/models", method="GET", headers=TOKEN))
        assert off.error == 'nothing is here: [server] own_paths is "off"'
        assert connection.ask(request("/v2/health/ready", method="GET")).status == 200


@exhaustive
def test_with_api_keys_both_are_asked(start: Start, tmp_path: Path) -> None:
    keys = write_private(tmp_path / "keys", f"{KEY}\n")
    server = start(MODELS, app=GUARDED, own_paths="app", http2=True, api_keys_file=str(keys))
    for http2 in (False, True):
        for headers, status in ((TOKEN, 401), (bearer(), 403), (TOKEN | bearer(), 200)):
            assert asked(server, "fast", headers, http2=http2) == [status] * ROUNDS
    assert WARNING not in server.stderr


@exhaustive
def test_a_start_warns_where_the_application_refuses_strangers_and_nothing_else_does(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start(MODELS, app=GUARDED)
    wait_until(lambda: WARNING in server.stderr, "the warning")
    assert asked(server, "fast", {}, http2=False) == [200] * ROUNDS
