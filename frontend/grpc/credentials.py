"""TLS for gRPC: the certificate is looked at for every handshake, and read where it has changed."""

from typing import Any

import grpc

from ringbatch.frontend.security.credentials import Watched
from ringbatch.shm.host.credentials import Credentials, server_tls


def server_credentials(credentials: Credentials) -> Any | None:
    """What a secure port needs; None where connections are plain.

    Raises:
        StartupError: a file is not what it should be.
    """
    # grpcio takes what is no certificate for one, and fails every handshake; so what it gets is
    # what was read and found well.
    watched = Watched(credentials.tls_files(), lambda: _configuration(credentials))
    if watched.value is None:
        return None

    def fetch() -> Any | None:
        return watched.value if watched.look() else None

    return grpc.dynamic_ssl_server_credentials(
        watched.value, fetch, credentials.tls_client_ca is not None
    )


def _configuration(credentials: Credentials) -> Any | None:
    tls = server_tls(credentials)
    if tls is None:
        return None
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.certificate)], tls.authorities)
