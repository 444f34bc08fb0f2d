"""A frontend's certificate and API keys, taken anew from their files whenever these change.

Nobody has to say that they did: the files are looked at from time to time. What is wrong with a
new one is logged, and what was read before stays in force.
"""

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ringbatch.frontend.api_keys import ApiKeys
from ringbatch.shm.credentials import Credentials, key_digests, server_context
from ringbatch.shm.errors import StartupError

log = logging.getLogger("ringbatch.frontend")

LOOK_EVERY_S: Final = 1.0

_Look = tuple[tuple[int, int, int] | None, ...]


class Watched:
    """Files that are read again when they have changed.

    Args:
        paths: of the files.
        read: reads them all, and puts into force what they hold; raises `StartupError`, having
            done nothing, where something is wrong with them.
    """

    def __init__(self, paths: tuple[Path, ...], read: Callable[[], None]) -> None:
        self._paths = paths
        self._read = read
        self._seen = self._stamps()

    def look(self) -> bool:
        """Read them if any has changed since the last look; whether what they hold is in force."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self._read()
        except StartupError as error:
            log.error("frontend: what was read before stays in force: %s", error)
            return False
        return True

    def _stamps(self) -> _Look:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs between a file and what was written in its stead."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Security:
    """What is asked of clients and shown to them.

    Attributes:
        keys: those of which a client must send one; None where everybody is served.
        context: for listening sockets; None where connections are plain.

    Args:
        credentials: the files.

    Raises:
        StartupError: one of them is not what it should be.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.keys: ApiKeys | None = None
        self.context: ssl.SSLContext | None = server_context(credentials)
        self._watched_keys: Watched | None = None
        self._watched_tls: Watched | None = None
        if credentials.api_keys is not None:
            path = credentials.api_keys
            self.keys = keys = ApiKeys(key_digests(path))
            self._watched_keys = Watched((path,), lambda: keys.replace(key_digests(path)))
        if self.context is not None:
            files = credentials.files()
            paths = tuple(path for name, path in files.items() if name.startswith("tls_"))
            self._watched_tls = Watched(paths, self._read_certificate)

    def look(self) -> bool:
        """Notice changed files; whether the keys are others now."""
        if self._watched_tls is not None and self._watched_tls.look():
            log.info("frontend: the certificate was read again")
        if self._watched_keys is not None and self._watched_keys.look():
            log.info("frontend: the API keys were read again")
            return True
        return False

    def _read_certificate(self) -> None:
        # A listening socket keeps the context that it was given, so that one has to change; but
        # only once all is known to be well.
        server_context(self._credentials)
        certificate, key = self._credentials.tls_certificate, self._credentials.tls_key
        assert self.context is not None, "it is watched only where there is one"
        assert certificate is not None, "there is a context"
        self.context.load_cert_chain(certificate, key, password="")
