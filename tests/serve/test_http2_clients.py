"""REST over HTTP/2 by what stands in front of it and what loads it: nginx, HAProxy, Chromium,
h2load, Go."""

import json
import os
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
from serve.secure import KEY, Authority, write_private
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

GO: Final = """
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Arguments: the authority's file, the size of bodies, and for each request its method, address,
// key and type. Writes for each its protocol, status, and how many seconds it took.
func main() {
	authority, _ := os.ReadFile(os.Args[1])
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool},
	}}
	var size int
	fmt.Sscan(os.Args[2], &size)
	for at := 3; at < len(os.Args); at += 4 {
		began := time.Now()
		asked, _ := http.NewRequest(os.Args[at], os.Args[at+1], bytes.NewReader(make([]byte, size)))
		asked.Header.Set("X-API-Key", os.Args[at+2])
		if os.Args[at+3] != "" {
			asked.Header.Set("Content-Type", os.Args[at+3])
		}
		answer, err := client.Do(asked)
		if err != nil {
			fmt.Println(err)
			continue
		}
		_, err = io.ReadAll(answer.Body)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(answer.Proto, answer.StatusCode, int(time.Since(began).Seconds()))
	}
}
"""
REFUSED: Final = [
    ("POST", PREDICT, "", "", 401),
    ("POST", "/nothing", KEY, "", 404),
    ("POST", "/v1/models/none:predict", KEY, "", 404),
    ("PUT", PREDICT, KEY, "", 405),
    ("POST", PREDICT, KEY, "", 413),
    ("POST", PREDICT, KEY, "application/cloudevents+json", 415),
    ("GET", "/v2/health/ready", KEY, "", 200),
]
"""Requests that their head alone decides, and one that is served in spite of its body."""


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(MODELS, http2=True, max_request_bytes=4 * len(LARGE))


def program(name: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        packages = "nginx-light, haproxy, nghttp2-client, golang-go"
        pytest.skip(f"{name} is not installed (Debian: {packages})")
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
        httpx.Client(
            http1=not http2, http2=http2, base_url=base, timeout=60, verify=False
        ) as client,
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
    # More streams than are served at once: no stream of a client within the settings is refused.
    command = [program("h2load"), "-n", "2000", "-c", "4", "-m", "200", "-d", str(body), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r"status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx", done.stdout), done.stdout
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout


@pytest.mark.parametrize("size", [2 << 20, 20 << 20])
def test_gos_client_waits_for_no_answer_that_comes_before_the_end_of_its_body(
    start: Start, tmp_path: Path, size: int
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certify()
    keys = write_private(tmp_path / "keys", f"{KEY}\n")
    own = {"tls_certificate": str(certificate), "tls_key": str(key), "api_keys_file": str(keys)}
    server = start(MODELS, http2=True, max_request_bytes=99, **own)
    (tmp_path / "early.go").write_text(GO)
    words = [str(authority.file), str(size)]
    for method, path, key_sent, kind, _ in REFUSED:
        words += [method, f"https://localhost:{server.port}{path}", key_sent, kind]
    done = subprocess.run(
        [program("go"), "run", str(tmp_path / "early.go"), *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"GO111MODULE": "off", "GOCACHE": str(tmp_path / "cache")},
    )
    assert done.stdout.splitlines() == [f"HTTP/2.0 {status} 0" for *_, status in REFUSED], done


def test_chromium_speaks_it_over_tls(start: Start, tmp_path: Path, wait_until: WaitUntil) -> None:
    certificate, key = Authority(tmp_path).certify()
    keys = {"tls_certificate": str(certificate), "tls_key": str(key)}
    server = start(MODELS, http2=True, max_request_bytes=4 * len(LARGE), **keys)
    browser = Browser(tmp_path)
    try:
        browser.do("Security.setIgnoreCertificateErrors", ignore=True)
        browser.open(f"https://localhost:{server.port}/docs")
        location = "document.readyState === 'complete' && location.pathname"
        wait_until(lambda: browser.value(location) == "/docs", "the page is there")
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
