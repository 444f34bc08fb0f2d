"""CORS on the Falcon path: answers to preflights, and headers that let pages read answers."""

import falcon
from falcon.asgi import Request, Response

from ringbatch.frontend.security.cors import (
    ORIGIN,
    PREFLIGHT_HEADERS,
    PREFLIGHT_METHOD,
    SharedWith,
)


class CrossOrigin:
    """Falcon's middleware. It comes before `Authentication`, because preflights have no key.

    Args:
        shared_with: the origins whose pages may read answers.
    """

    def __init__(self, shared_with: SharedWith) -> None:
        self._shared_with = shared_with

    async def process_request(self, req: Request, resp: Response) -> None:
        """Answer a preflight of an allowed origin; leave all other requests to the next ones."""
        if req.method != "OPTIONS":
            return
        headers = self._shared_with.preflight(
            req.get_header(ORIGIN),
            req.get_header(PREFLIGHT_METHOD),
            req.get_header(PREFLIGHT_HEADERS),
        )
        if headers:
            resp.status = falcon.HTTP_204
            resp.set_headers(headers)
            resp.complete = True

    async def process_response(
        self, req: Request, resp: Response, _resource: object, _succeeded: bool
    ) -> None:
        """Add the CORS headers to any answer, refusals included."""
        for name, value in self._shared_with.headers(req.get_header(ORIGIN)):
            resp.append_header(name, value)
