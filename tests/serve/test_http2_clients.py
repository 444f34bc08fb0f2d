"""REST over HTTP/2 by what stands in front of it and what loads it: nginx, HAProxy, Chromium,
h2load."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from serve.browser import Browser
from serve.secure import Authority
from serve.server import Server, Start
from tiers import exhaustive

pytestmark = exhaustive

WaitUntil = Callable[..., Any]
FreePort = Callable[[], int]
MODELS: Final = {"echo": {"path": "moody.py"}, "matmul": {"path": "matmul.py"}}
PREDICT: Final = "/v1/models/echo:predict"
LARGE: Final = "x" * (1 << 20)
"""Many windows and frames, each way."""
NGINX: Final = """
daemon off;
pid nginx.pid;
user root;
worker_processes 1;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    access_log off;
    client_max_body_size 16m;
    upstream engine {{
        server 127.0.0.1:{server};
        keepalive 4;
    }}
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://engine; }}
    }}
}}
"""
HAPROXY: Final = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend one
    bind 127.0.0.1:{port}
    default_backend engine
backend engine
    server one 127.0.0.1:{server} proto h2
"""


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(MODELS, http2=True, max_request_bytes=4 * len(LARGE))


def program(name: str) -> str:
    """Its path; skips the test where it is not installed."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: nginx-light, haproxy, nghttp2-client)")
    return found


@contextmanager
def nginx(folder: Path, port: int, server: int) -> Iterator[None]:
    text = NGINX.format(port=port, server=server)
    with running(folder, text, program("nginx"), "-e", "stderr", "-p", str(folder), "-c"):
        yield


@contextmanager
def haproxy(folder: Path, port: int, server: int) -> Iterator[None]:
    text = HAPROXY.format(port=port, server=server)
    with running(folder, text, program("haproxy"), "-db", "-f"):
        yield


@contextmanager
def running(folder: Path, text: str, *command: str) -> Iterator[None]:
    configuration = folder / "balancer.cfg"
    configuration.write_text(text)
    with (folder / "balancer.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(configuration)], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    ("kind", "http2"),
    [(nginx, True), (haproxy, True), (haproxy, False)],
    ids=["nginx", "haproxy", "haproxy-from-http/1.1"],
)
def test_a_proxy_passes_requests_on_over_http_2(
    server: Server,
    kind: Callable[[Path, int, int], Any],
    http2: bool,
    tmp_path: Path,
    free_port_factory: FreePort,
    wait_until: WaitUntil,
) -> None:
    port = free_port_factory()
    base = f"http://127.0.0.1:{port}"
    with (
        kind(tmp_path, port, server.port),
        httpx.Client(http1=not http2, http2=http2, base_url=base, timeout=60) as client,
    ):

        def listens() -> bool:
            try:
                return client.get("/v2/health/ready").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(listens, "it passes on")
        for number in range(50):
            answer = client.post(PREDICT, json={"instances": [number]})
            assert (answer.status_code, answer.json()["predictions"]) == (200, [number])
        answer = client.post(PREDICT, json={"instances": [LARGE]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["predictions"] == [LARGE]
        assert client.post(PREDICT, content=b"{").status_code == 400
        assert client.get("/nothing").status_code == 404
        assert client.head("/v2").status_code == 200


def test_h2load_is_answered_and_nothing_else(server: Server, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text(json.dumps({"instances": [1]}))
    url = f"http://127.0.0.1:{server.port}{PREDICT}"
    # More streams than are served at once: whoever keeps to the settings has none refused.
    command = [program("h2load"), "-n", "2000", "-c", "4", "-m", "200", "-d", str(body), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r"status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx", done.stdout), done.stdout
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout


def test_chromium_speaks_it_over_tls(start: Start, tmp_path: Path, wait_until: WaitUntil) -> None:
    certificate, key = Authority(tmp_path).certify()
    keys = {"tls_certificate": str(certificate), "tls_key": str(key)}
    server = start(MODELS, http2=True, max_request_bytes=4 * len(LARGE), **keys)
    browser = Browser(tmp_path)
    try:
        browser.do("Security.setIgnoreCertificateErrors", ignore=True)
        browser.open(f"https://localhost:{server.port}/docs")
        told = "document.readyState === 'complete' && location.pathname"
        wait_until(lambda: browser.value(told) == "/docs", "the page is there")
        answers = browser.value(f"""
(async () => {{
  const ask = async (value) => {{
    const body = JSON.stringify({{ instances: [value] }});
    const answer = await fetch("{PREDICT}", {{ method: "POST", body }});
    return (await answer.json()).predictions[0];
  }};
  const values = [...Array(200).keys(), "x".repeat({len(LARGE)})];
  const found = await Promise.all(values.map(ask));
  return found.every((value, at) => value === values[at]) && found.length;
}})()
""")
        assert answers == 201
        spoken = browser.value("""
[...new Set(["navigation", "resource"].flatMap((type) =>
  performance.getEntriesByType(type).map((entry) => entry.nextHopProtocol)))]
""")
        assert spoken == ["h2"]
        assert browser.complaints == []
    finally:
        browser.close()
