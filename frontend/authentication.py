"""API keys on the Falcon path: whoever has none is refused before anything else is looked at."""

from falcon.asgi import Request, Response

from ringbatch.frontend.api_keys import OPEN_PATHS, ApiKeys
from ringbatch.shm.errors import Unauthenticated
from ringbatch.shm.key_headers import AUTHORIZATION, KEY_HEADER


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
