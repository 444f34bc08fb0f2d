"""Warnings of settings by which strangers may read keys, or do without."""

from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config.exposure_warnings import exposures, is_loopback
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.host.credentials import Credentials

FILE = Path("/file")
TLS = {"tls_certificate": FILE, "tls_key": FILE}
KEYS = {"api_keys": FILE}
AFAR = {"host": "0.0.0.0", "control_host": "::", "control_port": 9090}


@pytest.mark.parametrize(
    ("settings", "clients", "control", "exposed"),
    [
        ({}, KEYS, KEYS, []),
        ({"host": "0.0.0.0"}, {}, {}, ["[server] host: models answer every host"]),
        ({"host": "::"}, TLS, TLS, ["[server] host: models answer every host"]),
        ({"host": "10.0.0.1"}, {**TLS, "tls_client_ca": FILE}, {}, []),
        ({"host": "localhost"}, {}, {}, []),
        ({"host": "unix:/run/ringbatch/prod.sock"}, {}, {}, []),
        ({"host": "0.0.0.0", "own_paths": "app", "app": "a:b"}, {}, {}, []),
        ({"host": "0.0.0.0", "app": "a:b"}, {}, {}, ["[server] host: models answer every host"]),
        ({"host": "10.0.0.1"}, KEYS, KEYS, ["[server] host: API keys"]),
        ({"host": "0.0.0.0"}, {**KEYS, **TLS}, {}, []),
        ({"control_port": 9090}, KEYS, KEYS, []),
        ({"control_host": "0.0.0.0"}, KEYS, KEYS, []),
        (AFAR, KEYS, KEYS, ["[server] host: API keys", "[server] control_host: API keys"]),
        (AFAR, {**KEYS, **TLS}, {**KEYS, **TLS}, []),
        (AFAR, KEYS, {**KEYS, **TLS}, ["[server] host: API keys"]),
        (AFAR, TLS, TLS, ["[server] host: models", "[server] control_host: metrics"]),
        ({"own_paths": "app", "app": "a:b"}, {}, {}, []),
        ({"own_paths": "app", "app": "a:b", "grpc_port": 1}, {}, {}, ["[server] own_paths"]),
        ({"own_paths": "off", "app": "a:b", "grpc_port": 1}, {}, {}, ["[server] own_paths"]),
        ({"own_paths": "off", "app": "a:b", "grpc_port": 1}, KEYS, {}, []),
        ({"own_paths": "off", "grpc_port": 1}, {**TLS, "tls_client_ca": FILE}, {}, []),
        ({"app": "a:b", "grpc_port": 1}, {}, {}, []),
    ],
)
def test_an_exposed_address_gets_a_warning(
    settings: dict[str, Any],
    clients: dict[str, Path],
    control: dict[str, Path],
    exposed: list[str],
) -> None:
    server = ServerConfig(**settings)
    found = list(exposures(server, Credentials(**clients), Credentials(**control)))
    assert [word[: len(begins)] for (word, _), begins in zip(found, exposed, strict=True)] == (
        exposed
    )
    assert all(do for _, do in found)


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("engine.test", False),
        ("localhost.test", False),
    ],
)
def test_only_a_loopback_address_keeps_other_hosts_out(host: str, near: bool) -> None:
    assert is_loopback(host) is near
