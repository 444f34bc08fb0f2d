"""Origins whose pages may read answers: the Fetch standard's CORS protocol. Pure.

A browser sends a page's requests to other sites, but the page may read an answer only if its head
allows the page's origin. Before a request that an HTML form cannot make, such as one with an API
key, the browser asks for permission: the preflight.
"""

from collections.abc import Iterable
from typing import Final

ORIGIN: Final = "origin"
"""The header in which a browser names the origin of a page; no page can change it."""
PREFLIGHT_METHOD: Final = "access-control-request-method"
PREFLIGHT_HEADERS: Final = "access-control-request-headers"
ANY: Final = "*"

_ALLOW: Final = "access-control-allow-origin"
_EXPOSE: Final = (
    "access-control-expose-headers",
    "x-request-id, retry-after, server-timing, endpoint-load-metrics, "
    "inference-header-content-length, x-batch-id",
)
_VARY: Final = ("vary", ORIGIN)
"""A shared cache must not give one origin's answer to another."""
_MAX_AGE_S: Final = 7200
"""Seconds for which a browser remembers the answer to a preflight; Chromium's upper limit."""

Headers = tuple[tuple[str, str], ...]


class SharedWith:
    """The origins of the setting ``cors_origins``.

    Args:
        origins: as browsers write them; `ANY` stands for all.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origins)

    def __bool__(self) -> bool:
        """Return whether the pages of any origin may read answers."""
        return bool(self._origins)

    def names(self, origin: str | None) -> bool:
        """Return whether the setting names an origin. `ANY` names none."""
        return origin is not None and origin != ANY and origin in self._origins

    def headers(self, origin: str | None) -> Headers:
        """Return the headers of an answer.

        Args:
            origin: of the page whose request it answers; None if no page has sent it.
        """
        if origin is None:
            return ()
        if ANY in self._origins:
            return (_ALLOW, ANY), _EXPOSE
        return ((_ALLOW, origin), _EXPOSE, _VARY) if origin in self._origins else ()

    def lines(self, origin: bytes) -> bytes:
        """Return `headers` as bytes for the end of a head, each line behind its CRLF.

        Args:
            origin: as above; empty if no page has sent the request.
        """
        headers = self.headers(origin.decode("latin-1") if origin else None)
        return b"".join(f"\r\n{name}: {value}".encode("latin-1") for name, value in headers)

    def preflight(self, origin: str | None, method: str | None, names: str | None) -> Headers:
        """Return the headers of the answer to a preflight, besides those of `headers`.

        Args:
            origin: of the page.
            method: the method that the page wants to use; None if the request is no preflight.
            names: the headers that it wants to send; None if the browser asks for none.

        Returns:
            Nothing if the request is no preflight, or its origin is not allowed.
        """
        if method is None or not self.headers(origin):
            return ()
        # The same for every path. Preflights have no key, and must not tell which paths exist.
        answer: Headers = (
            ("access-control-allow-methods", "GET, HEAD, POST"),
            ("access-control-max-age", str(_MAX_AGE_S)),
        )
        return answer if names is None else (*answer, ("access-control-allow-headers", names))
