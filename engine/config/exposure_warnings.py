"""Warnings of settings that let strangers read or use more than the user expects. Reads no file.

Such settings are legal, because a proxy or a firewall may stand in front.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.host.credentials import Credentials

_ENCRYPT: Final = "set {}, or let a proxy on this host encrypt"


def exposures(
    server: ServerConfig, clients: Credentials, control: Credentials
) -> Iterator[tuple[str, str]]:
    """Yield each exposure with its remedy.

    Args:
        server: the settings.
        clients: the credential files of the frontends.
        control: the credential files of the control address.
    """
    keys = clients.api_keys is not None
    host = server.tcp_host
    is_open = host is not None and not is_loopback(host)
    if keys and clients.tls_certificate is None and is_open:
        yield (
            f"[server] host: API keys travel unencrypted from other hosts to {host}",
            _ENCRYPT.format("tls_certificate and tls_key"),
        )
    guarded = keys or clients.tls_client_ca is not None
    if is_open and server.own_paths == "keys" and not guarded:
        yield (
            f"[server] host: models answer every host that reaches {host}, without a key",
            "set api_keys_file or tls_client_ca, or let a firewall or a proxy decide",
        )
    if server.control_port is not None and not is_loopback(server.control_host):
        if not keys:
            yield (
                f"[server] control_host: metrics and the page are shown to every host that reaches "
                f"{server.control_host}",
                "set api_keys_file, or let a firewall decide",
            )
        elif control.tls_certificate is None:
            yield (
                "[server] control_host: API keys, which predict too, travel unencrypted from other "
                f"hosts to {server.control_host}",
                _ENCRYPT.format("tls_certificate and tls_key, or control_tls_certificate"),
            )
    if server.own_paths != "keys" and server.serves_grpc and not guarded:
        yield (
            "[server] own_paths does not hold for gRPC, which serves everybody",
            "set api_keys_file or tls_client_ca, or leave gRPC out",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this host can reach a listening address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
