"""API keys: where a client puts one, and whether it is one of the server's.

Only digests are kept and compared, and every digest is compared with every known one, so that the
time it takes says nothing of how near a guess was.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from ringbatch.shm.host.api_key_lines import KeyOptions

OPEN_PATHS: Final = frozenset({"/", "/v2/health/live", "/v2/health/ready"})
"""Paths that need no key, for monitoring."""
_SCHEME: Final = "bearer"
_PLAIN: Final = KeyOptions()
_NAME_DIGITS: Final = 8
"""Digits of a digest that name its key: too few to find the key by, enough to tell keys apart."""


class ApiKeys:
    """The keys of a server, which may change while it runs.

    Args:
        options: of the keys, by their SHA-256 digests.

    Attributes:
        changes: how often they have become others; what a key allowed before the last change is to
            be looked up again.
    """

    def __init__(self, options: Mapping[bytes, KeyOptions]) -> None:
        self._options = dict(options)
        self.changes = 0

    def replace(self, options: Mapping[bytes, KeyOptions]) -> None:
        """Take these keys, and no others any more."""
        self._options = dict(options)
        self.changes += 1

    def allow(self, authorization: str | None, key: str | None) -> bool:
        """Return whether a request may be served.

        Args:
            authorization: its header Authorization, in which the scheme is Bearer.
            key: its header X-API-Key; either will do.
        """
        return self.digest(authorization, key) is not None

    def digest(self, authorization: str | None, key: str | None) -> bytes | None:
        """Return the digest of a request's key; None if it has none of the server's.

        Args:
            authorization, key: as for `allow`; of two valid keys the first counts.
        """
        scheme, _, token = (authorization or "").partition(" ")
        bearer = token.strip(" ") if scheme.lower() == _SCHEME else ""
        known = [self._known(candidate) for candidate in (bearer, key or "") if candidate]
        return next(filter(None, known), None)

    def options(self, digest: bytes) -> KeyOptions:
        """Return the options of a key by its digest; of a key without any if it is not known."""
        return self._options.get(digest, _PLAIN)

    @property
    def digests(self) -> Iterable[bytes]:
        """The digests of all keys."""
        return self._options.keys()

    def name(self, digest: bytes) -> str:
        """Return the name of a key by its digest, for people; without one, its first digits."""
        return self.options(digest).name or f"key-{digest.hex()[:_NAME_DIGITS]}"

    def _known(self, candidate: str) -> bytes | None:
        digest = hashlib.sha256(candidate.encode(errors="replace")).digest()
        found = False
        for known in self._options:
            found |= hmac.compare_digest(digest, known)
        return digest if found else None
