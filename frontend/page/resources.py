"""The page and its parts, on Falcon."""

import hashlib
import time
from importlib.resources import files
from typing import Any, Final

import falcon
import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.http.asgi_scope import EXCHANGES
from ringbatch.frontend.page.feed import RETRY_MS, slowest
from ringbatch.frontend.page.subscribers import MAX_SUBSCRIBERS, Subscribers
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.slow_requests import slow_requests

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: nothing comes from elsewhere, nothing goes there."""
_MEDIA: Final = {
    "html": falcon.MEDIA_HTML,
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "LICENSE": falcon.MEDIA_TEXT,
}
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_PAGE: Final = "page.html"
MAX_ID_MS: Final = 1 << 53


def add_routes(
    app: falcon.asgi.App[Request, Response], subscribers: Subscribers, segment: Segment
) -> None:
    """Add the page.

    Args:
        app: to which.
        subscribers: of its stream.
        segment: attached.
    """
    found = {}
    for file in files("ringbatch.frontend.page").joinpath("assets").iterdir():
        found[file.name] = Asset(file.name, file.read_bytes())
    app.add_route("/", found.pop(_PAGE))
    for name, asset in found.items():
        app.add_route(f"/assets/{name}", asset)
    app.add_route("/live", EventStream(subscribers))
    app.add_route("/slowest", SlowestResource(segment))


class Asset:
    """A file that a browser keeps, and asks for whether it is still the same.

    Args:
        name: of the file.
        data: in it.
    """

    def __init__(self, name: str, data: bytes) -> None:
        self._data = data
        self._media = _MEDIA[name.rpartition(".")[2]]
        self._tag = falcon.ETag(hashlib.sha256(data).hexdigest()[:32])

    async def on_get(self, req: Request, resp: Response) -> None:
        """Answer with the file, or 304 if the browser has it."""
        resp.set_headers(_HEADERS)
        # Kept, but not used before it was asked whether another version is installed.
        resp.cache_control = ["no-cache"]
        resp.etag = self._tag
        if self._tag in (req.if_none_match or ()):
            resp.status = falcon.HTTP_304
            return
        resp.data = self._data
        resp.content_type = self._media

    on_head = on_get


class EventStream:
    """Events for as long as somebody watches.

    Args:
        subscribers: subscribers of the page.
    """

    def __init__(self, subscribers: Subscribers) -> None:
        self._subscribers = subscribers

    async def on_get(self, req: Request, resp: Response) -> None:
        """Send events from Last-Event-ID or the parameter `after` on; else from the first one kept.

        503 if too many watch.
        """
        exchanges: set[Any] = req.scope.get(EXCHANGES, set())
        subscriber = self._subscribers.admit(_known_ms(req), exchanges)
        if subscriber is None:
            raise falcon.HTTPServiceUnavailable(
                description=f"{MAX_SUBSCRIBERS} pages are open already; close one of them",
                retry_after=RETRY_MS // 1000,
            )
        resp.set_headers(_HEADERS)
        resp.cache_control = ["no-store"]
        # nginx would keep events back until its buffer is full.
        resp.set_header("X-Accel-Buffering", "no")
        resp.sse = subscriber


class SlowestResource:
    """The requests that took longest lately, for programs.

    Args:
        segment: attached.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with the slowest requests and their phases in milliseconds, the slowest first."""
        self._segment.read_models()
        now_ns, at_ms = time.monotonic_ns(), time.time_ns() // 1_000_000
        found = slowest(slow_requests(self._segment, now_ns), now_ns, at_ms)
        resp.data = orjson.dumps({"slowest": found})
        resp.content_type = falcon.MEDIA_JSON
        resp.cache_control = ["no-store"]

    on_head = on_get


def _known_ms(req: Request) -> int:
    """Return the time of the last event that a subscriber has; 0 if it names none."""
    last_id = req.get_header("Last-Event-ID") or req.get_param("after") or ""
    known_ms = (
        int(last_id) if last_id.isascii() and last_id.isdecimal() and len(last_id) < 20 else 0
    )
    return known_ms if known_ms < MAX_ID_MS else 0
