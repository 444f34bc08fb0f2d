"""Errors of a client that its engine does not know of."""

from ringbatch.frontend.codec.outcome import status_of
from ringbatch.shm.errors import ModelNotReady, RequestError
from ringbatch.shm.tallies import CLIENT_GONE


class EngineGone(ModelNotReady):
    """The engine stopped or died, and with it what was in flight."""


class ClientClosed(RequestError):
    """The client was closed, or belongs to the process from which this one was forked."""


class Interrupted(RequestError):
    """Another thread was interrupted amid its own call, which cost this request its answer."""


def counted_as(error: RequestError) -> int:
    """Return the status under which the end of a request is counted."""
    nobody_waits = isinstance(error, ClientClosed | Interrupted)
    return CLIENT_GONE if nobody_waits else status_of(error)
