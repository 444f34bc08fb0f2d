"""V2 bodies for models that take the request's context."""

from typing import Any, Self

from ringbatch.frontend.codec.request_context import Heard, RequestContext
from ringbatch.frontend.v2.request import Described, InferRequests, Outline, Request
from ringbatch.frontend.v2.shared_memory import ClientMemory
from ringbatch.shm.model_spec import ModelSpec


def context_requests(
    spec: ModelSpec, memory: ClientMemory, max_in_flight: int
) -> "ContextRequests | None":
    """Return the reader of requests to a typed model with request context; None for others."""
    if not spec.typed or spec.words is None:
        return None
    return ContextRequests(spec, memory, max_in_flight)


class ContextRequests(InferRequests):
    """Requests to one such model. Nothing that they say is remembered.

    Args:
        spec: the model, with declared inputs.
        memory, max_in_flight: as in `InferRequests`.
    """

    remembers = False

    def __init__(self, spec: ModelSpec, memory: ClientMemory, max_in_flight: int) -> None:
        super().__init__(spec, memory, max_in_flight)
        self._words = RequestContext(spec)
        self._heard: Heard = b""
        self._told = b""

    def hear(self, heard: Heard) -> Self:
        """Take the headers of the request that is parsed next."""
        self._heard = heard
        return self

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> Request:
        """As in `Requests`."""
        try:
            self._told = self._words.text(self._heard, "", None) if json_bytes == 0 else b""
            return super().parse(body, json_bytes)
        finally:
            self._heard = self._told = b""

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        return None

    def _described(self, request: Any) -> Described:
        described = super()._described(request)
        self._told = self._words.text(self._heard, request.get("id"), request.get("parameters"))
        return described

    def _said(self) -> bytes:
        return self._told
