"""States of a client that its engine knows nothing of."""

from ringbatch.shm.errors import ModelNotReady, RequestError


class EngineGone(ModelNotReady):
    """The engine stopped or died, and with it what was in flight."""


class ClientClosed(RequestError):
    """The client was closed, or belongs to the process from which this one was forked."""


class Interrupted(RequestError):
    """Another thread was interrupted amid its own call, which cost this request its answer."""
