"""The request's context for a model that takes it: its id, its parameters and chosen headers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from ringbatch.shm.errors import InvalidRequest, RequestTooLarge
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import MOST_BYTES

RawHeaders = bytes | Sequence[tuple[bytes, bytes]]
"""The headers of a request: the head as it came, or names in lower case and values."""
_ID: Final = b"x-request-id"


class RequestContext:
    """Builder of the request context for one model.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._headers = {name.encode(): name for name in spec.words or ()}

    def text(self, headers: RawHeaders, identity: Any, parameters: Any) -> bytes:
        """Return the context as a JSON object.

        Args:
            headers: the headers; empty if there are none.
            identity: of the request, if its body has one.
            parameters: an object; None if there are none.

        Raises:
            InvalidRequest: the parameters are no object, or cannot be passed on.
            RequestTooLarge: all of it is too large.
        """
        if not isinstance(parameters, Mapping | None):
            raise InvalidRequest("the parameters of a request are an object, by their names")
        found: dict[str, str] = {}
        chosen = ""
        for name, value in _pairs(headers):
            if name == _ID:
                chosen = value.decode("latin-1")
            known = self._headers.get(name)
            if known is not None:
                before = f"{found[known]}, " if known in found else ""
                found[known] = before + value.decode("latin-1")
        own = identity if isinstance(identity, str) and identity else chosen
        try:
            context = orjson.dumps(
                {"id": own, "parameters": {**(parameters or {})}, "headers": found}
            )
        except (TypeError, orjson.JSONEncodeError):
            raise InvalidRequest(
                "the parameters of the request cannot be passed on: they have half of a surrogate "
                "pair, a number of more than 64 bits, or too many levels"
            ) from None
        if len(context) > MOST_BYTES:
            raise RequestTooLarge(
                f"the request's id, parameters and headers take {len(context)} bytes, but a model "
                f"gets at most {MOST_BYTES} of a request"
            )
        return context


def _pairs(headers: RawHeaders) -> Sequence[tuple[bytes, bytes]]:
    if not isinstance(headers, bytes):
        return headers
    lines = (line.partition(b":") for line in headers.split(b"\r\n")[1:] if line)
    return [(name.lower(), value.strip(b" \t")) for name, _, value in lines]
