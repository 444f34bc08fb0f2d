"""Access to the page: from this host, and from others with a key."""

import base64
import os
from typing import Any

import pytest
from page_harness import client

from ringbatch.frontend.metrics.control_keys import basic_password, is_near, names_this_host
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.credentials import key_digests
from ringbatch.shm.segment import Segment

KEY = "a-key-of-the-tests-0123456789"
AFAR = "192.0.2.7"
"""Address of another host."""


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the engine's name, pid and serving lanes, which a local segment lacks."""
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", os.getpid())
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 1)


@pytest.fixture
def keys(tmp_path: Any) -> ApiKeys:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    return ApiKeys(key_digests(file))


def from_afar(
    keys: ApiKeys | None,
    path: str,
    headers: dict[str, str] | None = None,
    peer: str = AFAR,
    host: str = "127.0.0.1",
) -> Any:
    return client(keys).simulate_get(path, headers=headers, remote_addr=peer, host=host)


PATHS = ("/", "/live", "/slowest", "/metrics", "/assets/page.js", "/nothing")


@pytest.mark.parametrize("path", PATHS)
def test_another_host_needs_a_key(keys: ApiKeys, path: str) -> None:
    for headers in ({}, {"X-API-Key": "wrong"}, {"Authorization": f"Basic {KEY}"}):
        answer = from_afar(keys, path, headers)
        assert answer.status_code == 401
        assert "an API key is needed" in answer.json["error"]
        challenge = answer.headers["www-authenticate"]
        assert 'Bearer realm="ringbatch"' in challenge
        assert 'Basic realm="ringbatch"' in challenge


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/live"])
def test_a_key_opens_it_however_it_comes(keys: ApiKeys, path: str) -> None:
    basic = base64.b64encode(f"somebody:{KEY}".encode()).decode()
    for headers in (
        {"Authorization": f"Bearer {KEY}"},
        {"X-API-Key": KEY},
        {"Authorization": f"Basic {basic}"},
    ):
        assert from_afar(keys, path, headers).status_code == (404 if path == "/nothing" else 200)


def test_health_needs_none_nor_does_this_host_nor_anybody_where_there_are_none(
    keys: ApiKeys,
) -> None:
    assert from_afar(keys, "/v2/health/live").status_code == 200
    assert from_afar(keys, "/v2/health/ready").status_code in (200, 503)
    assert from_afar(None, "/metrics").status_code == 200
    for peer in ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"):
        assert from_afar(keys, "/", peer=peer).status_code == 200


def test_keys_that_are_taken_away_open_nothing_any_more(keys: ApiKeys) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    assert from_afar(keys, "/", headers).status_code == 200
    keys.replace({})
    assert from_afar(keys, "/", headers).status_code == 401


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        (None, True),
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_only_this_host_is_near(peer: str | None, near: bool) -> None:
    assert is_near(peer) is near


def test_a_proxy_on_this_host_and_a_name_of_another_site_open_nothing(keys: ApiKeys) -> None:
    near = "127.0.0.1"
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert from_afar(keys, "/", {header: near}, near).status_code == 401
    assert from_afar(keys, "/", None, near, "evil.example").status_code == 401
    assert from_afar(keys, "/", {"X-API-Key": KEY}, near, "evil.example").status_code == 200
    assert from_afar(None, "/", None, near, "evil.example").status_code == 200


def test_a_client_with_http_1_0_on_this_host_counts_as_a_proxy(keys: ApiKeys) -> None:
    def asked(path: str, version: str, **headers: str) -> int:
        answer: Any = client(keys).simulate_get(
            path, headers=headers, remote_addr="127.0.0.1", host="127.0.0.1", http_version=version
        )
        return int(answer.status_code)

    assert asked("/metrics", "1.0") == 401
    assert asked("/metrics", "1.1") == 200
    assert asked("/metrics", "1.0", Authorization=f"Bearer {KEY}") == 200
    assert asked("/v2/health/live", "1.0") == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [
        (None, True),
        ("", True),
        ("localhost", True),
        ("LOCALHOST:9090", True),
        ("ringbatch.localhost:9090", True),
        ("127.0.0.1:9090", True),
        ("127.1.2.3", True),
        ("[::1]:9090", True),
        ("[::1]", True),
        ("localhost.evil.example", False),
        ("notlocalhost", False),
        ("127.0.0.1.evil.example:9090", False),
        ("[2001:db8::1]:9090", False),
        ("10.0.0.1:9090", False),
    ],
)
def test_a_host_header_names_this_host_or_another(host: str | None, own: bool) -> None:
    assert names_this_host(host) is own


@pytest.mark.parametrize(
    ("header", "password"),
    [
        (None, ""),
        ("", ""),
        ("Basic", ""),
        ("Basic ???", ""),
        ("Basic /w==", ""),
        (f"Bearer {base64.b64encode(b'u:p').decode()}", ""),
        (f"Basic {base64.b64encode(b'nothing').decode()}", ""),
        (f"Basic {base64.b64encode(b'u:p').decode()}", "p"),
        (f"bAsIc  {base64.b64encode(b':p:q').decode()}", "p:q"),
    ],
)
def test_a_typed_password_is_read(header: str | None, password: str) -> None:
    assert basic_password(header) == password
