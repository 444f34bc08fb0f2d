"""HTTP/2 on the port of HTTP, by foreign clients: curl, and httpx with h2."""

import asyncio
import json
import re
import shutil
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from dev_shm import takes
from serve.raw_http2 import Load
from serve.secure import KEY, Authority, bearer, write_private
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

pytestmark = takes(30)

WaitUntil = Callable[..., Any]
MODELS = {"echo": {"path": "moody.py"}, "matmul": {"path": "matmul.py"}}
ROW = [float(number) for number in range(16)]
V1 = json.dumps({"instances": [ROW]}).encode()
TENSOR: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
V2 = json.dumps({"id": "a", "inputs": [TENSOR | {"data": [ROW]}]}).encode()
HEAD = json.dumps(
    {"inputs": [TENSOR | {"parameters": {"binary_data_size": 64}}]}, separators=(",", ":")
).encode()
BINARY = HEAD + struct.pack("<16f", *ROW)
LENGTH = {"Inference-Header-Content-Length": str(len(HEAD))}
LARGEST = 4 << 20
_DIFFERING = ("date", "x-request-id", "x-batch-id", "connection", "keep-alive")
_BATCH = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(MODELS, http2=True, max_request_bytes=LARGEST, client_lanes=0)


@pytest.fixture(params=["http/1.1", "h2c"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    yield from _client(server, request.param == "h2c")


def _client(server: Server, http2: bool) -> Iterator[httpx.Client]:
    base = f"http://127.0.0.1:{server.port}"
    with httpx.Client(
        http1=not http2, http2=http2, base_url=base, timeout=60, verify=False
    ) as found:
        yield found


CASES: dict[str, tuple[str, str, bytes | None, dict[str, str], int]] = {
    "v1": ("POST", "/v1/models/matmul:predict", V1, {}, 200),
    "v1-untyped": ("POST", "/v1/models/echo:predict", b'{"instances":[1,"a"]}', {}, 200),
    "v1-escaped": ("POST", "/v1/models/matmul%3Apredict", V1, {}, 200),
    "v2": ("POST", "/v2/models/matmul/infer", V2, {}, 200),
    "v2-binary": ("POST", "/v2/models/matmul/infer", BINARY, LENGTH, 200),
    "models": ("GET", "/v1/models", None, {}, 200),
    "metadata": ("GET", "/v2/models/matmul", None, {}, 200),
    "ready": ("GET", "/v2/health/ready", None, {}, 200),
    "docs": ("GET", "/docs", None, {}, 200),
    "query": ("GET", "/v2?a=b", None, {}, 200),
    "head": ("HEAD", "/v2", None, {}, 200),
    "no-json": ("POST", "/v1/models/matmul:predict", b"{", {}, 400),
    "wrong-shape": ("POST", "/v1/models/matmul:predict", b'{"instances":[[1]]}', {}, 400),
    "no-body": ("POST", "/v1/models/matmul:predict", b"", {}, 400),
    "refused": ("POST", "/v1/models/echo:predict", b'{"instances":["refuse"]}', {}, 400),
    "no-model": ("POST", "/v1/models/none:predict", V1, {}, 404),
    "nothing": ("GET", "/nothing", None, {}, 404),
    "no-method": ("DELETE", "/v1/models", None, {}, 405),
    "no-coding": ("POST", "/v1/models/matmul:predict", V1, {"Content-Encoding": "br"}, 415),
    "wrong-timeout": (
        "POST",
        "/v1/models/echo:predict",
        b'{"instances":[1]}',
        {"X-Request-Timeout": "soon"},
        400,
    ),
    "raised": ("POST", "/v1/models/echo:predict", b'{"instances":["raise"]}', {}, 500),
}


@pytest.mark.parametrize("case", CASES)
def test_every_answer_is_that_of_http_1(server: Server, case: str) -> None:
    method, path, body, fields, status = CASES[case]
    found = []
    for http2 in (False, True):
        for client in _client(server, http2):
            answer = client.request(method, path, content=body, headers=fields)
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
            assert answer.status_code == status, answer.text
            assert answer.headers["x-request-id"]
            same = {name: value for name, value in answer.headers.items() if name not in _DIFFERING}
            found.append((same, _BATCH.sub(b"", answer.content)))
    assert found[0] == found[1]


def test_large_bodies_are_taken_and_larger_ones_refused(client: httpx.Client) -> None:
    text = "x" * (LARGEST // 2)
    answer = client.post("/v1/models/echo:predict", json={"instances": [text]})
    assert answer.status_code == 200
    assert answer.json()["predictions"] == [text]
    over = client.post("/v1/models/echo:predict", json={"instances": ["x" * LARGEST]})
    assert over.status_code == 413
    assert client.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "fields", "status"),
    [
        ("POST", "/nothing", {}, 404),
        ("POST", "/v1/models/none:predict", {}, 404),
        ("POST", "/v2/models/none/infer", {}, 404),
        ("PUT", "/v1/models/echo:predict", {}, 405),
        ("POST", "/v1/models/echo:predict", {"Content-Encoding": "br"}, 415),
        ("POST", "/v1/models/echo:predict", {"X-Long": "x" * (1 << 16)}, 431),
    ],
)
def test_a_body_that_is_refused_by_its_head_may_be_sent_whole(
    client: httpx.Client, method: str, path: str, fields: dict[str, str], status: int
) -> None:
    for _ in range(3):
        answer = client.request(method, path, headers=fields, content=bytes(3 << 20), timeout=60)
        assert (answer.status_code, "error" in answer.json()) == (status, True)
    assert client.get("/v1/models").status_code == 200


def test_a_body_without_a_length_is_taken(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield V1[:10]
        yield V1[10:]

    answer = client.post("/v1/models/matmul:predict", content=pieces())
    assert answer.status_code == 200


def test_many_requests_of_one_connection_are_under_way_at_once(server: Server) -> None:
    async def ask_all() -> list[int]:
        base = f"http://127.0.0.1:{server.port}"
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(
            http1=False, http2=True, base_url=base, timeout=60, limits=limits, verify=False
        ) as client:

            async def ask(number: int) -> int:
                body = {"instances": [number]}
                answer = await client.post("/v1/models/echo:predict", json=body)
                found: int = answer.json()["predictions"][0]
                return found

            return await asyncio.gather(*map(ask, range(100)))

    assert asyncio.run(ask_all()) == list(range(100))


def curl(*words: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if "HTTP2" not in subprocess.run(["curl", "-V"], capture_output=True, text=True).stdout:
        pytest.skip("this curl speaks no HTTP/2")
    command = ["curl", "-s", "-S", "-w", "\n%{http_version} %{http_code}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("how", ["--http2-prior-knowledge", "--http2", "--http1.1"])
def test_curl_gets_its_answer_however_it_asks(server: Server, how: str) -> None:
    """Without TLS, --http2 asks by Upgrade, and nobody follows."""
    base = f"http://127.0.0.1:{server.port}"
    end = f"{'2' if how == '--http2-prior-knowledge' else '1.1'} 200"
    assert curl(how, f"{base}/").endswith(end)
    output = curl(how, "-d", V1.decode(), f"{base}/v1/models/matmul:predict")
    assert "predictions" in output
    assert output.endswith(end)


def test_over_tls_the_hand_shake_chooses(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certify()
    keys = write_private(tmp_path / "keys", KEY + "\n")
    server = start(
        MODELS,
        http2=True,
        tls_certificate=str(certificate),
        tls_key=str(key),
        api_keys_file=str(keys),
    )
    base = f"https://localhost:{server.port}"
    for http2, version in ((True, "HTTP/2"), (False, "HTTP/1.1")):
        context: ssl.SSLContext = authority.client_context()
        with httpx.Client(http2=http2, verify=context, base_url=base, timeout=60) as client:
            path = "/v1/models/matmul:predict"
            refused = client.post(path, content=V1)
            assert (refused.http_version, refused.status_code) == (version, 401)
            answer = client.post(path, content=V1, headers=bearer())
            assert (answer.http_version, answer.status_code) == (version, 200)
    assert curl("--cacert", str(authority.file), f"{base}/").endswith("2 200")


@exhaustive
def test_where_it_is_not_configured_nobody_speaks_it(start: Start) -> None:
    server = start(MODELS)
    with (
        httpx.Client(http1=False, http2=True, verify=False) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.get(f"http://127.0.0.1:{server.port}/")


@exhaustive
@pytest.mark.parametrize("connections", [pytest.param(4, id="some")])
def test_a_reload_and_a_stop_under_load_fail_no_request(
    start: Start, wait_until: WaitUntil, connections: int
) -> None:
    server = start({"echo": {"path": "moody.py"}}, http2=True, frontends=2)
    load = Load(server.port, connections)
    try:
        wait_until(lambda: load.answered > 200, "answers")
        command = [*COMMAND, "reload", "--model", "echo", "--pid", str(server.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "loaded" in done.stdout
        before = load.answered
        wait_until(lambda: load.answered > before + 200, "answers of the new workers")
        server.process.terminate()
        assert server.process.wait(60) == 0
    finally:
        load.stop()
    assert load.failures == []
    assert load.refused == connections


API = str(Path(__file__).with_name("applications") / "api:app")
OF_API = {"matmul": {"path": "matmul.py"}, "echo": {"path": "slow.py"}, "nap": {"path": "slow.py"}}


@pytest.fixture(scope="module")
def application(start_for_module: Start) -> Server:
    pytest.importorskip("starlette")
    return start_for_module(OF_API, http2=True, app=API, frontends=1)


@pytest.mark.parametrize("http2", [False, True], ids=["http/1.1", "h2c"])
def test_a_stream_without_a_pause_ends_with_its_client_and_holds_up_nobody(
    application: Server, http2: bool, wait_until: WaitUntil
) -> None:
    base = f"http://127.0.0.1:{application.port}"

    def ends() -> int:
        return len(httpx.get(f"{base}/ends", timeout=60, verify=False).json())

    before = ends()
    for client in _client(application, http2):
        with client.stream("GET", "/endless") as answer:
            pieces = answer.iter_raw()
            for _ in range(20):
                assert next(pieces)
                assert (
                    httpx.get(f"{base}/v2/health/ready", timeout=60, verify=False).status_code
                    == 200
                )
    # httpx leaves with its connection; it takes no stream of HTTP/2 back.
    wait_until(lambda: ends() > before, "its end")


@pytest.mark.parametrize("http2", [False, True], ids=["http/1.1", "h2c"])
@pytest.mark.parametrize("path", ["/exit", "/cancelled"])
def test_a_route_that_raises_system_exit_is_500_and_ends_nothing(
    application: Server, http2: bool, path: str
) -> None:
    pid = application.role("frontend 0")
    for client in _client(application, http2):
        for _ in range(200):
            assert client.get(path, timeout=60).status_code == 500
        assert client.get("/v2/health/ready", timeout=60).status_code == 200
    assert application.role("frontend 0") == pid


def test_an_application_of_ones_own_is_served_over_it(application: Server) -> None:
    for client in _client(application, True):
        answer = client.post("/sums", json=[ROW])
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
