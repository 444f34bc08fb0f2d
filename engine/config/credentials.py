"""Paths of credential files, from the configuration or from systemd."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import Credentials

DIRECTORY_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Set by systemd for units with LoadCredential=, see systemd.exec(5)."""
_TLS: Final = ("tls_certificate", "tls_key", "tls_client_ca")
_KEYS: Final = "api_keys"
_OF_CONTROL: Final = "control_"
NAMES: Final = (*_TLS, *(f"{_OF_CONTROL}{name}" for name in _TLS[:2]), _KEYS)
"""Names of the files that systemd may load."""


def credentials_of(server: ServerConfig, environment: Mapping[str, str]) -> Credentials:
    """Return the frontends' credential files: as configured, else as systemd has loaded them.

    systemd puts files into the directory that the environment names. Their names are
    ``tls_certificate``, ``tls_key``, ``tls_client_ca`` and ``api_keys``.

    Raises:
        StartupError: that directory cannot be read.
    """
    tls = _tls(server, environment, _TLS)
    keys = {_KEYS: server.api_keys_file} if server.api_keys_file is not None else {}
    return Credentials(**tls, **(keys or _loaded(environment, (_KEYS,))))


def control_credentials_of(server: ServerConfig, environment: Mapping[str, str]) -> Credentials:
    """Return the credential files of the control address, found as `credentials_of` finds others.

    Its certificate is ``control_tls_certificate`` with ``control_tls_key``, else the frontends'.
    It takes their API keys. Its clients need no certificate: scrapers on this host have none.

    Raises:
        StartupError: as `credentials_of`.
    """
    shared = credentials_of(server, environment)
    own = _tls(server, environment, [f"{_OF_CONTROL}{key}" for key in _TLS[:2]])
    tls = {name.removeprefix(_OF_CONTROL): path for name, path in own.items()} or {
        name: path for name, path in shared.files().items() if name in _TLS[:2]
    }
    return Credentials(**tls, api_keys=shared.api_keys)


def _tls(
    server: ServerConfig, environment: Mapping[str, str], names: Sequence[str]
) -> dict[str, Path]:
    """Return the files of these names that exist; certificate and key are the first two names."""
    given = {name: getattr(server, name) for name in names if getattr(server, name) is not None}
    loaded = _loaded(environment, names)
    # A certificate or a key alone may belong to another pair.
    return loaded | given if {*names[:2]} <= loaded.keys() | given.keys() else given


def _loaded(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, Path]:
    directory = environment.get(DIRECTORY_VARIABLE)
    if not directory:
        return {}
    places = {name: Path(directory, name) for name in names}
    try:
        return {name: path for name, path in places.items() if path.is_file()}
    except OSError as error:
        # Without its key file, a frontend would serve everybody.
        raise StartupError(f"{DIRECTORY_VARIABLE}: {directory}: {error.strerror}") from None
