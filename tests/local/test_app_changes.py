"""Requests of pages of other sites, which change nothing."""

import asyncio
import hashlib
from typing import Any

import pytest
from falcon.testing import TestClient
from http_harness import Transport
from scripted_app import MAX_REQUEST_BYTES, ScriptedService, ask
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.falcon import memory_resources, v2_resources
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.v2.regions import Regions
from ringbatch.shm.host.api_key_lines import KeyOptions

FOREIGN = {
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "another-port": {"Sec-Fetch-Site": "same-site", "Origin": "http://engine:9090"},
    "old-browser": {"Origin": "http://elsewhere.example"},
    "no-origin": {"Origin": "null"},
}
OWN: dict[str, dict[str, str]] = {
    "no-browser": {},
    "own-page": {"Sec-Fetch-Site": "same-origin", "Origin": "http://engine:8080"},
    "own-page-behind-a-proxy": {"Sec-Fetch-Site": "same-origin", "Origin": "https://x.y"},
    "own-page-in-an-old-browser": {"Origin": "http://engine:8080"},
    "its-user": {"Sec-Fetch-Site": "none"},
}
HERE = {"host": "engine", "port": 8080}
CHANGES = [
    "/v2/repository/models/good/load",
    "/v2/repository/models/good/unload",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/systemsharedmemory/region/r/unregister",
    "/v2/systemsharedmemory/unregister",
    "/v2/cudasharedmemory/unregister",
    "/v2/logging",
]


@pytest.mark.parametrize("path", CHANGES)
def test_pages_of_other_sites_change_nothing(path: str) -> None:
    for case, headers in FOREIGN.items():
        got = ask("POST", path, headers=headers, **HERE)
        assert got.status_code == 403, case
        assert "another site" in got.json["error"]
    for case, headers in OWN.items():
        assert ask("POST", path, headers=headers, **HERE).status_code != 403, case


@pytest.mark.parametrize(
    ("host", "refused"),
    [
        ("attacker.example", True),
        ("10.0.0.1.attacker.example", True),
        ("localhost.attacker.example", True),
        ("attacker.example.", True),
        ("[::1", True),
        ("127.0.0.1", False),
        ("[::1]", False),
        ("localhost", False),
        ("engine", False),
        ("engine.default.svc.cluster.local", False),
    ],
)
def test_without_keys_no_page_changes_anything_under_a_name_that_others_may_have(
    host: str, refused: bool
) -> None:
    """The page's host and the request's are the same then (DNS rebinding)."""

    def status(keys: ApiKeys | None, **headers: str) -> int:
        service = ScriptedService()
        app = create_app(service, MAX_REQUEST_BYTES, keys=keys)  # type: ignore[arg-type]
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        got = TestClient(app).simulate_post("/v2/logging", headers=sent, host=host, port=8080)
        return got.status_code

    own = f"http://{host}:8080"
    assert (status(None, Origin=own) == 403) is refused
    # A browser sends this header only to a name with a certificate.
    assert status(None, Origin=own, Sec_Fetch_Site="same-origin") != 403
    assert status(None, Origin=f"https://{host}:8080") != 403
    assert status(None) != 403
    keys = ApiKeys({hashlib.sha256(b"key").digest(): KeyOptions()})
    assert status(keys, Origin=own, X_API_Key="key") != 403


@pytest.mark.parametrize("path", CHANGES[:5])
@pytest.mark.parametrize("framing", [b"Content-Length: 2", b"Transfer-Encoding: chunked"])
def test_a_request_that_broke_off_changes_nothing(
    path: str, framing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[object] = []

    async def change(*wanted: object) -> None:
        changes.append(wanted)

    async def test() -> None:
        monkeypatch.setattr(v2_resources, "control_model", change)
        monkeypatch.setattr(memory_resources, "patiently", change)
        monkeypatch.setattr(Regions, "expect_on", lambda _: None)
        app = create_app(ScriptedService(), MAX_REQUEST_BYTES)  # type: ignore[arg-type]
        config = Config(app, lifespan="off", ws="none", log_config=None, interface="asgi3")
        transport = Transport()
        loop = asyncio.get_running_loop()
        transport.protocol = FallbackProtocol(config, ServerState(), {}, loop)
        transport.protocol.connection_made(transport)
        head = b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % (path.encode(), framing)
        transport.protocol.data_received(head)
        await settle()
        transport.protocol.connection_lost(None)
        await settle()

    asyncio.run(test())
    assert changes == []


async def settle() -> None:
    """Run every task until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_any_new_path_that_takes_posts_counts_as_a_change() -> None:
    app = create_app(ScriptedService(), MAX_REQUEST_BYTES)  # type: ignore[arg-type]

    class New:
        async def on_post(self, _req: Any, _resp: Any) -> None:
            """Do nothing."""

    app.add_route("/new", New())
    got = TestClient(app).simulate_post("/new", headers=FOREIGN["cross-site"])
    assert got.status_code == 403


@pytest.mark.parametrize("path", ["/v1/models/good:predict", "/v2/models/good/infer"])
def test_any_page_may_send_a_request_that_changes_nothing(path: str) -> None:
    for headers in FOREIGN.values():
        assert ask("POST", path, headers=headers, body=b"{}", **HERE).status_code != 403
