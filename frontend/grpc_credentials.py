"""TLS for gRPC: the certificate is looked at for every handshake, and read where it has changed."""

from typing import Any

import grpc

from ringbatch.frontend.security import Watched
from ringbatch.shm.credentials import Credentials, server_context


def server_credentials(credentials: Credentials) -> Any | None:
    """What a secure port needs; None where connections are plain.

    Raises:
        StartupError: a file is not what it should be.
    """
    if server_context(credentials) is None:
        return None
    paths = tuple(path for name, path in credentials.files().items() if name.startswith("tls_"))
    # grpcio takes what is no certificate for one, and fails every handshake.
    watched = Watched(paths, lambda: _check(credentials))

    def fetch() -> Any | None:
        return _configuration(credentials) if watched.look() else None

    return grpc.dynamic_ssl_server_credentials(
        _configuration(credentials), fetch, credentials.tls_client_ca is not None
    )


def _check(credentials: Credentials) -> None:
    server_context(credentials)


def _configuration(credentials: Credentials) -> Any:
    certificate, key = credentials.tls_certificate, credentials.tls_key
    assert certificate is not None, "asked only where there is one"
    assert key is not None, "a certificate comes with its key"
    authorities = credentials.tls_client_ca
    return grpc.ssl_server_certificate_configuration(
        [(key.read_bytes(), certificate.read_bytes())],
        None if authorities is None else authorities.read_bytes(),
    )
