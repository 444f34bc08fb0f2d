"""Who is refused on the Falcon path before anything else is looked at: whoever has no API key, and
pages of other sites that would change something here."""

from typing import Any, Final

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.security.api_keys import OPEN_PATHS, ApiKeys
from ringbatch.shm.errors import Unauthenticated
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

_READING: Final = ("GET", "HEAD", "OPTIONS")
_OWN_SITES: Final = ("same-origin", "none")


class Authentication:
    """Falcon's middleware.

    Args:
        keys: of the server.
    """

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def process_request(self, req: Request, _resp: Response) -> None:
        """Before routing, so that nobody learns which paths there are; raises `Unauthenticated`."""
        if req.path in OPEN_PATHS:
            return
        if not self._keys.allow(req.get_header(AUTHORIZATION), req.get_header(KEY_HEADER)):
            raise Unauthenticated


class OwnPagesOnly:
    """Falcon's middleware: a browser sends what any page asks it to, from within the network in
    which it is, and with the certificate that its user has. So what a page of another site sends
    changes nothing here. Resources whose `answers_only` is true change nothing anyway."""

    async def process_resource(
        self, req: Request, _resp: Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """After routing; raises `falcon.HTTPForbidden`."""
        if req.method in _READING or getattr(resource, "answers_only", False):
            return
        if is_foreign(
            req.get_header("Sec-Fetch-Site"), req.get_header("Origin"), req.get_header("Host") or ""
        ):
            raise falcon.HTTPForbidden(
                description="this was sent by a page of another site, which may change nothing here"
            )


def is_foreign(site: str | None, origin: str | None, host: str) -> bool:
    """Whether a page of another site had its browser send a request.

    Args:
        site: the request's header Sec-Fetch-Site, which browsers send and no page can change; None
            where there is none, as of whatever is no browser.
        origin: the same of Origin, which older browsers send as well.
        host: its header Host.
    """
    if site is not None:
        return site.lower() not in _OWN_SITES
    return origin is not None and origin.lower().partition("://")[2] != host.lower()
