"""V1 bodies for models that take the request's context: further members are parameters.

{"instances": [...], "top_k": 5}
"""

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.request_context import RawHeaders, RequestContext
from ringbatch.frontend.v1.request import Parsed, TypedRequests, UntypedRequests, unreadable
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import as_list

_OWN = ("instances", "inputs")


class ContextRequests:
    """Requests to one such model.

    Args:
        spec: the model.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(self, spec: ModelSpec, max_in_flight: int) -> None:
        self._context_builder = RequestContext(spec)
        self._typed = TypedRequests(spec, max_in_flight) if spec.typed else None
        self._untyped = UntypedRequests(spec, max_in_flight)

    def parse(self, body: bytes | bytearray, headers: RawHeaders = b"") -> Parsed:
        """Read a body.

        Args:
            body: all of it.
            headers: the headers that came with it.

        Raises:
            RequestError: as of `TypedRequests` and `UntypedRequests`, and of `RequestContext`.
        """
        if self._typed is None:
            return self._parse_untyped(body, headers)
        try:
            request = loads(body)
        except JSONDecodeError as error:
            raise unreadable(body, error) from None
        others = request if isinstance(request, dict) else {}
        context = self._context(headers, others)
        return self._typed.read(request, body, context)

    def _parse_untyped(self, body: bytes | bytearray, headers: RawHeaders) -> Parsed:
        text, request, key = self._untyped.read(body)
        context = self._context(headers, {name: value.decoded for name, value in request.items()})
        parts = [
            Part(part.rows, as_list(context, part.payload), part.key_bytes)
            for part in self._untyped.parts(text, request[key])
        ]
        return tuple(parts), False

    def _context(self, headers: RawHeaders, members: dict[str, object]) -> bytes:
        parameters = {name: value for name, value in members.items() if name not in _OWN}
        return self._context_builder.text(headers, "", parameters)
