"""Pages of other origins: answers that they may read, preflights, and a real browser."""

import http.server
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from serve.browser import Browser
from serve.client import Connection, instances, request
from serve.secure import KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

PATH = "/v1/models/echo:predict"
BODY = instances(1)
ALLOW = "access-control-allow-origin"
KEYS = bearer(KEY)


class Pages(http.server.ThreadingHTTPServer):
    """A site of empty pages, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "index.html").write_text("<!doctype html><title>page</title>")
        handler = partial(_Silent, directory=str(folder))
        super().__init__(("127.0.0.1", 0), handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with Pages(tmp_path_factory.mktemp("pages")) as found:
        serving = threading.Thread(target=found.serve_forever)
        serving.start()
        yield found
        found.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def server(
    start_for_module: Start, tmp_path_factory: pytest.TempPathFactory, pages: Pages
) -> Server:
    keys = write_private(tmp_path_factory.mktemp("keys") / "keys", f"{KEY}\n")
    return start_for_module(
        {"echo": {"path": "moody.py"}},
        cors_origins=[pages.origin],
        api_keys_file=str(keys),
        model_control=True,
        http2=True,
        max_request_bytes=1 << 16,
    )


@pytest.fixture(params=["http/1.1", "h2c"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    http2 = request.param == "h2c"
    base = f"http://127.0.0.1:{server.port}"
    with httpx.Client(
        http1=not http2, http2=http2, base_url=base, timeout=60, verify=False
    ) as found:
        yield found


def preflight(client: httpx.Client, origin: str, path: str = PATH) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return client.options(path, headers=headers)


def test_answers_and_refusals_are_shared_with_the_page(client: httpx.Client, pages: Pages) -> None:
    page = {"origin": pages.origin}
    for headers, path, status in (
        (KEYS, PATH, 200),
        (KEYS | {"x-server-timing": "1"}, PATH, 200),
        ({}, PATH, 401),
        (KEYS, "/v1/models/none:predict", 404),
        (KEYS, "/v1/models/echo%3Apredict", 200),
    ):
        answer = client.post(path, content=BODY, headers=headers | page)
        assert answer.status_code == status, answer.text
        assert answer.headers.get_list(ALLOW) == [pages.origin]
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert "origin" in answer.headers["vary"]
    too_large = client.post(PATH, content=b" " * (1 << 17), headers=KEYS | page)
    assert (too_large.status_code, too_large.headers[ALLOW]) == (413, pages.origin)
    assert client.get("/v1/models", headers=KEYS | page).headers[ALLOW] == pages.origin


def test_the_fast_lane_shares_its_answers_itself(server: Server, pages: Pages) -> None:
    before = server.status().frontends["handed_over"]
    with Connection(server.port) as connection:
        for origin in (pages.origin, pages.origin, "http://evil.example.com", pages.origin):
            text = request(PATH, BODY, headers=KEYS | {"Origin": origin})
            answer = connection.ask(text)
            assert answer.status == 200
            assert answer.headers.get(ALLOW) == (origin if origin == pages.origin else None)
    assert server.status().frontends["handed_over"] == before


def test_other_origins_and_programs_get_no_such_header(client: httpx.Client, pages: Pages) -> None:
    for headers in ({}, {"origin": "http://evil.example.com"}, {"origin": pages.origin + "0"}):
        answer = client.post(PATH, content=BODY, headers=KEYS | headers)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_preflight_needs_no_key_and_tells_no_path(client: httpx.Client, pages: Pages) -> None:
    for path in (PATH, "/v1/models/none:predict", "/nothing", "/v2/repository/models/echo/load"):
        answer = preflight(client, pages.origin, path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers.get_list(ALLOW) == [pages.origin]
        assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
        assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    foreign = preflight(client, "http://evil.example.com")
    assert foreign.status_code == 401
    assert not [name for name in foreign.headers if name.startswith("access-control")]
    assert client.options(PATH, headers={"origin": pages.origin}).status_code == 401


def test_a_named_origin_may_change_the_served_models(client: httpx.Client, pages: Pages) -> None:
    path = "/v2/repository/models/none/load"
    site = {"sec-fetch-site": "cross-site"}
    foreign = client.post(path, headers=KEYS | site | {"origin": "http://evil.example.com"})
    assert foreign.status_code == 403
    named = client.post(path, headers=KEYS | site | {"origin": pages.origin})
    assert named.status_code != 403
    assert (named.json()["error"].count("none"), named.headers[ALLOW]) == (1, pages.origin)


ASK = """
fetch("%s", {method: "POST", body: '%s', headers: %s}).then(
  async (answer) => [answer.status, await answer.text(), answer.headers.get("x-request-id")],
  (error) => ["refused", String(error), null])
"""


@exhaustive
def test_a_page_on_another_port_asks_in_a_real_browser(
    server: Server, pages: Pages, tmp_path: Path
) -> None:
    browser = Browser(tmp_path)
    try:
        url = f"http://127.0.0.1:{server.port}{PATH}"
        headers = json.dumps(KEYS | {"content-type": "application/json"})
        browser.open(f"{pages.origin}/index.html")
        status, text, request_id = browser.value(ASK % (url, BODY.decode(), headers))
        assert (status, json.loads(text)["predictions"], bool(request_id)) == (200, [1], True)
        status, text, _ = browser.value(ASK % (url, "{", headers))
        assert (status, "error" in json.loads(text)) == (400, True)
        # The same page by another name is of another origin.
        browser.open(f"{pages.origin.replace('127.0.0.1', 'localhost')}/index.html")
        assert browser.value(ASK % (url, BODY.decode(), headers))[0] == "refused"
    finally:
        browser.close()
