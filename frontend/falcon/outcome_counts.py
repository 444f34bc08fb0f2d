"""Counts of requests on the Falcon path that never reach the pipeline, or are for no model."""

import re
import time
from typing import Any, Final

from falcon.asgi import Request, Response

from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.http.asgi_scope import ENDING, REFUSED
from ringbatch.frontend.request.service import Service
from ringbatch.shm.tallies import CLIENT_GONE, Protocol

_NOWHERE: Final = 404
_PREDICTION: Final = re.compile(r"/v1/models/[^/]+:predict")
"""Paths of predictions, also those with a line break in the model's name, at which Falcon's routes
end."""


class Counting:
    """Falcon's middleware that counts requests, in front of all others.

    A resource that infers has `infers`, which returns a request's protocol.

    Args:
        service: the models.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def process_request(self, req: Request, _resp: Response) -> None:
        """Note the start of a request, before anything else sees it."""
        context = req.context
        context.began_ns = time.monotonic_ns()
        context.counted = context.cut_off = False
        context.model = ""

    async def process_resource(
        self, req: Request, _resp: Response, _resource: object, params: dict[str, Any]
    ) -> None:
        """Note the model's address after routing."""
        req.context.model = address(params.get("name", ""), params.get("version", ""))

    async def process_response(
        self, req: Request, resp: Response, resource: object, _succeeded: bool
    ) -> None:
        """Count the outcome before the answer is written."""
        context = req.context
        if context.counted or req.scope.get(REFUSED):
            return
        code = CLIENT_GONE if context.cut_off else resp.status_code
        infers = getattr(resource, "infers", None)
        if infers is None and code == _NOWHERE and _PREDICTION.fullmatch(req.path):
            self._service.record_outside(Protocol.V1, code, accepted_ns=context.began_ns)
        elif infers is None:
            self._service.record_outside(Protocol.HTTP, code, accepted_ns=context.began_ns)
        else:
            self._service.record_outside(infers(req), code, context.model, context.began_ns)
        req.scope[ENDING] = self._service.last_ending()
