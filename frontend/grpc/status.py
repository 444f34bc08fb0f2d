"""Statuses of failed calls over gRPC."""

from typing import Final, NamedTuple

from ringbatch.frontend.codec.grpc_codes import (
    DEADLINE_EXCEEDED,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
)
from ringbatch.frontend.codec.outcome import rule_of, text_of
from ringbatch.shm.errors import ModelServerAnswered, RequestError

_CODES_OF_SERVERS: Final = {
    400: INVALID_ARGUMENT,
    404: NOT_FOUND,
    413: RESOURCE_EXHAUSTED,
    422: INVALID_ARGUMENT,
    429: UNAVAILABLE,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
}
"""Statuses here for those of a model server that are more than its failure."""
_LONGEST_TEXT: Final = 1024
"""Characters: a text goes out as a header, and clients refuse more than 8 KiB of these."""


class GrpcStatus(NamedTuple):
    """The end of a call: a status code of gRPC's and the text beside it."""

    code: int
    text: str


def grpc_status(error: RequestError) -> GrpcStatus:
    """Return the status of a call that failed."""
    code = rule_of(error).code
    if isinstance(error, ModelServerAnswered):
        code = _CODES_OF_SERVERS.get(error.status, code)
    text = text_of(error).encode(errors="replace").decode()
    return GrpcStatus(code, text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...")
