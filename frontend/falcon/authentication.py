"""Access control before routing: API keys, and pages of other sites that would change something."""

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.security.api_keys import OPEN_PATHS, ApiKeys
from ringbatch.frontend.security.cors import SharedWith
from ringbatch.shm.errors import Unauthenticated
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

_READING: Final = ("GET", "HEAD", "OPTIONS")
_OWN_SITES: Final = ("same-origin", "none")
_UNVERIFIED: Final = "http"
"""The scheme of origins whose host name no certificate confirms."""
_PRIVATE: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Endings of names that nobody can register (RFC 6761, RFC 6762, RFC 8375, ICANN)."""


class Authentication:
    """Falcon's middleware.

    Args:
        keys: of the server.
    """

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def process_request(self, req: Request, _resp: Response) -> None:
        """Check the key before routing, so that nobody learns which paths exist."""
        if req.path in OPEN_PATHS:
            return
        if not self._keys.allow(req.get_header(AUTHORIZATION), req.get_header(KEY_HEADER)):
            raise Unauthenticated


class OwnPagesOnly:
    """Falcon's middleware against cross-site requests.

    A browser sends requests for any page, from within its network and with the certificate of its
    user. So pages of other sites may change nothing here. Resources whose `answers_only` is true
    change nothing anyway.

    Args:
        shared_with: the origins that count as own if they are named.
        by_key: whether a request needs a key. Without keys, a page also counts as foreign if the
            name of its own site may lead here (DNS rebinding).
    """

    def __init__(self, shared_with: SharedWith, *, by_key: bool) -> None:
        self._shared_with = shared_with
        self._by_key = by_key

    async def process_resource(
        self, req: Request, _resp: Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """Refuse a foreign page's request that would change something, after routing."""
        if req.method in _READING or getattr(resource, "answers_only", False):
            return
        site, origin = req.get_header("Sec-Fetch-Site"), req.get_header("Origin")
        if self._shared_with.names(origin):
            return
        host = req.get_header("Host") or ""
        if is_foreign(site, origin, host):
            raise falcon.HTTPForbidden(
                description="this was sent by a page of another site, which may change nothing here"
            )
        if not self._by_key and site is None and is_rebindable(origin, host):
            raise falcon.HTTPForbidden(
                description=f'this was sent by a page of "{host[:80]}", a name that another site '
                "may have and let lead here; ask by the server's address, over TLS, or with API "
                "keys"
            )


def is_foreign(site: str | None, origin: str | None, host: str) -> bool:
    """Return whether a page of another site had its browser send a request.

    Args:
        site: the request's header Sec-Fetch-Site, which browsers send and no page can change; None
            if there is none, as from other programs.
        origin: the same of Origin, which older browsers send as well.
        host: its header Host.
    """
    if site is not None:
        return site.lower() not in _OWN_SITES
    return origin is not None and origin.lower().partition("://")[2] != host.lower()


def is_rebindable(origin: str | None, host: str) -> bool:
    """Return whether a page's own host may be a registered name that leads here.

    Args:
        origin: the request's header Origin; None if there is none, as outside of browsers.
        host: the request's header Host.
    """
    if origin is None or origin.lower().partition("://")[0] != _UNVERIFIED:
        return False
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return True
    if name.endswith(_PRIVATE) or not {".", ":"} & set(name):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return True
    return False
