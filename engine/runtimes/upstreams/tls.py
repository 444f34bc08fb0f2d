"""TLS to model servers, and messages about unusable certificate files."""

import ssl

from ringbatch.engine.models.model import Options
from ringbatch.shm.errors import StartupError


def tls_context(options: Options) -> ssl.SSLContext:
    """Return a TLS context that verifies the host name of model servers.

    Raises:
        StartupError: a file cannot be used; the text says which and why.
    """
    path = options.upstream_ca
    try:
        context = ssl.create_default_context(cafile=path)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        path = options.upstream_certificate
        if path is not None:
            # A key with a password is refused; without this, OpenSSL would ask the terminal.
            context.load_cert_chain(path, options.upstream_key, password="")
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartupError(f"{path}: cannot be used for TLS to model servers: {reason}") from None
    return context
