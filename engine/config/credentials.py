"""Where the files with credentials are: as configured, or where systemd has put them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import Credentials

DIRECTORY_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Set by systemd for units with LoadCredential=, see systemd.exec(5)."""


def credentials_of(server: ServerConfig, environment: Mapping[str, str]) -> Credentials:
    """The files of a configuration; where it names none, those that systemd has loaded.

    A file in the directory that the environment names is meant where it is called
    ``tls_certificate``, ``tls_key``, ``tls_client_ca`` or ``api_keys``.

    Raises:
        StartupError: that directory cannot be read.
    """
    configured = Credentials(
        server.tls_certificate, server.tls_key, server.tls_client_ca, server.api_keys_file
    )
    directory = environment.get(DIRECTORY_VARIABLE)
    loaded: dict[str, Path] = {}
    if directory:
        places = {name: Path(directory, name) for name in Credentials.__slots__}
        try:
            loaded = {name: path for name, path in places.items() if path.is_file()}
        except OSError as error:
            # To serve without them could be to serve everybody.
            raise StartupError(f"{DIRECTORY_VARIABLE}: {directory}: {error.strerror}") from None
    if not {"tls_certificate", "tls_key"} <= loaded.keys() | configured.files().keys():
        # One of the two alone may well be somebody else's.
        for name in ("tls_certificate", "tls_key", "tls_client_ca"):
            loaded.pop(name, None)
    return Credentials(**loaded | configured.files())
