"""V2 bodies for models that take the request's context."""

from typing import Any, Self

from ringbatch.frontend.codec.request_context import RawHeaders, RequestContext
from ringbatch.frontend.v2.request import InferRequests
from ringbatch.frontend.v2.request_records import Described, InferRequest, Outline
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
        self._context_builder = RequestContext(spec)
        self._headers: RawHeaders = b""
        self._context = b""

    def with_headers(self, headers: RawHeaders) -> Self:
        """Take the headers of the request that is parsed next."""
        self._headers = headers
        return self

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """As in `Requests`."""
        try:
            self._context = (
                self._context_builder.text(self._headers, "", None) if json_bytes == 0 else b""
            )
            return super().parse(body, json_bytes)
        finally:
            self._headers = self._context = b""

    def read(self, request: Any, text: bytes | bytearray) -> InferRequest:
        """As in `Requests`."""
        try:
            return super().read(request, text)
        finally:
            self._headers = self._context = b""

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        return None

    def _described(self, request: Any) -> Described:
        described = super()._described(request)
        self._context = self._context_builder.text(
            self._headers, request.get("id"), request.get("parameters")
        )
        return described

    def _context_bytes(self) -> bytes:
        return self._context
