"""Reloading of a frontend's certificate, authorities and API keys when their files change.

No signal is needed: the files are looked at from time to time. A fault in a new file is logged, and
the previous content stays in force.
"""

import logging
import ssl
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.handshakes import FailedHandshakes, Handshake
from ringbatch.shm.host.api_key_lines import KeyOptions
from ringbatch.shm.host.credentials import Credentials, Tls, key_digests, objection, server_tls
from ringbatch.shm.host.reloading_files import ReloadingFiles

log = logging.getLogger("ringbatch.frontend")

LOOK_EVERY_S: Final = 1.0


def _complain(text: str) -> None:
    log.error("frontend: what was read before stays in force: %s", text)


class ContextInForce(ssl.SSLContext):
    """Context for listening sockets that hands every hand-shake to the context in force.

    So a changed file takes effect at once, authorities included, and no earlier session can be
    resumed.

    Attributes:
        current: that context.
        failed: counter of failed hand-shakes.
    """

    current: ssl.SSLContext
    failed: FailedHandshakes

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Begin the hand-shake of a connection; called by the event loop."""
        self.current.sslobject_class = Handshake
        made = self.current.wrap_bio(*arguments, **named)
        assert isinstance(made, Handshake), "contexts make objects of the class that is set"
        made.failed = self.failed
        return made


class Changes(NamedTuple):
    """Changes that a look has found.

    Attributes:
        keys: True if a client with a key may have lost access.
        authorities: True if a client with a certificate may have lost access.
    """

    keys: bool
    authorities: bool


class Security:
    """Credentials in force, of the server and for clients.

    Attributes:
        keys: those of which a client must send one; None to serve every client.
        context: for listening sockets; None if connections are plain.
        failed_handshakes: counter of failed TLS hand-shakes.

    Args:
        credentials: the files.
        protocols: that are spoken over TLS, as ALPN names them.

    Raises:
        StartupError: one of them is not what it should be.
    """

    def __init__(self, credentials: Credentials, protocols: Sequence[str] = ("http/1.1",)) -> None:
        self.keys: ApiKeys | None = None
        self.context: ContextInForce | None = None
        self.failed_handshakes = FailedHandshakes()
        self._digests: ReloadingFiles[dict[bytes, KeyOptions]] | None = None
        if credentials.api_keys is not None:
            path = credentials.api_keys
            self._digests = ReloadingFiles((path,), lambda: key_digests(path), _complain)
            self.keys = ApiKeys(self._digests.value)
        self._tls: ReloadingFiles[Tls | None] = ReloadingFiles(
            credentials.tls_files(), lambda: server_tls(credentials, protocols), _complain
        )
        if self._tls.value is not None:
            self.context = ContextInForce(ssl.PROTOCOL_TLS_SERVER)
            self.context.current = self._tls.value.context
            self.context.failed = self.failed_handshakes

    def look(self) -> Changes:
        """Notice changed files and apply their contents; count failed hand-shakes."""
        self.failed_handshakes.look()
        return Changes(keys=self._look_at_keys(), authorities=self._look_at_certificates())

    def _look_at_keys(self) -> bool:
        if self.keys is None or self._digests is None or not self._digests.look():
            return False
        self.keys.replace(self._digests.value)
        log.info("frontend: the API keys were read again")
        return True

    def _look_at_certificates(self) -> bool:
        before = self._tls.value
        if not self._tls.look():
            return False
        tls = self._tls.value
        assert before is not None, "there are files"
        assert tls is not None, "where they are does not change"
        assert self.context is not None, "there are files"
        self.context.current = tls.context
        log.info("frontend: the certificate was read again")
        if (why := objection(tls)) is not None:
            log.warning("frontend: clients may refuse this certificate: %s", why)
        return tls.authorities != before.authorities
