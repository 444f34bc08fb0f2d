"""Statuses of errors over gRPC: one table, as `outcome.RULES` is HTTP's."""

from typing import Final, NamedTuple

from ringbatch.frontend.codec.outcome import InternalError, NotSupported, text_of
from ringbatch.shm.errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    LoadFailed,
    MemoryNotFound,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    ModelServerAnswered,
    ModelServerBroken,
    ModelServerDown,
    ModelServerMiscounted,
    Overloaded,
    RegionTaken,
    RequestError,
    RequestTooLarge,
    Unauthenticated,
    WorkerDied,
)

OK: Final = 0
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

CODES: Final[dict[type[RequestError], int]] = {
    InvalidRequest: INVALID_ARGUMENT,
    RegionTaken: ALREADY_EXISTS,
    Unauthenticated: UNAUTHENTICATED,
    ModelNotFound: NOT_FOUND,
    MemoryNotFound: NOT_FOUND,
    RequestTooLarge: RESOURCE_EXHAUSTED,
    LoadFailed: INTERNAL,
    ModelFailed: INTERNAL,
    InternalError: INTERNAL,
    NotSupported: UNIMPLEMENTED,
    ModelNotReady: UNAVAILABLE,
    Overloaded: UNAVAILABLE,
    Draining: UNAVAILABLE,
    WorkerDied: UNAVAILABLE,
    ModelServerAnswered: INTERNAL,
    ModelServerBroken: UNAVAILABLE,
    ModelServerMiscounted: INTERNAL,
    ModelServerDown: UNAVAILABLE,
    DeadlineExceeded: DEADLINE_EXCEEDED,
}
"""Status by error. Clients repeat a call after UNAVAILABLE; the other errors would come again."""

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
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    if isinstance(error, ModelServerAnswered):
        code = _CODES_OF_SERVERS.get(error.status, code)
    text = text_of(error).encode(errors="replace").decode()
    return GrpcStatus(code, text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...")
