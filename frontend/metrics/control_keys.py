"""Access control of the control address: clients of other hosts need an API key, if any is set."""

import ipaddress
from base64 import b64decode
from binascii import Error
from typing import Final

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

OPEN_PATHS: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
"""Paths that need no key, for monitoring."""
CHALLENGES: Final = ('Bearer realm="ringbatch"', 'Basic realm="ringbatch", charset="UTF-8"')
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""Headers of which one at least is there if a proxy on this host speaks for others."""
_OF_PROXIES: Final = "1.0"
"""The version of HTTP that nginx speaks to servers by default, when it sends none of these headers
either."""
_OWN_NAME: Final = "localhost"
_BASIC: Final = "basic"
_WORDS: Final = (
    "an API key is needed from other hosts: as Authorization: Bearer KEY or X-API-Key: KEY, and in "
    "a browser as the password of any user"
)


class KeysFromAfar:
    """Falcon's middleware.

    Args:
        keys: of the engine.
    """

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def process_request(self, req: Request, _resp: Response) -> None:
        """Refuse a client without a key before routing, so that it cannot probe paths.

        It raises `falcon.HTTPUnauthorized`.
        """
        if req.path in OPEN_PATHS or self._is_local(req):
            return
        authorization = req.get_header(AUTHORIZATION)
        key = req.get_header(KEY_HEADER) or basic_password(authorization)
        if not self._keys.allow(authorization, key):
            raise falcon.HTTPUnauthorized(description=_WORDS, challenges=CHALLENGES)

    @staticmethod
    def _is_local(req: Request) -> bool:
        """Return whether a program on this host asks, by an address of this host.

        A name that leads here may be another site's, whose page would read the answer.
        """
        if req.scope["http_version"] == _OF_PROXIES:
            return False
        if any(req.get_header(name) is not None for name in _FORWARDED):
            return False
        peer = req.scope.get("client")
        return is_near(None if peer is None else next(iter(peer))) and names_this_host(
            req.get_header("Host")
        )


def names_this_host(host: str | None) -> bool:
    """Return whether a Host header is 127.0.0.1 or localhost, which no other site can have.

    Args:
        host: with or without a port; None if there is none.
    """
    if not host:
        return True
    bare = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    name = bare.lower().rstrip(".")
    return name == _OWN_NAME or name.endswith(f".{_OWN_NAME}") or is_near(name)


def is_near(host: str | None) -> bool:
    """Return whether a peer is on this host.

    Args:
        host: its address; None over a Unix socket.
    """
    if host is None:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def basic_password(authorization: str | None) -> str:
    """Return the password of HTTP's Basic scheme, as browsers send it; empty without one."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != _BASIC:
        return ""
    try:
        return b64decode(token.strip(" "), validate=True).decode().partition(":")[2]
    except (Error, UnicodeDecodeError, ValueError):
        return ""
