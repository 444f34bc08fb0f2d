"""Frontends between clients and the ring: HTTP and gRPC servers, and a client in Python.

A program on the same host imports from here what it needs to use the engine. This package imports
each name at its first use: every process of a frontend imports this package too, and needs few.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "AnswerCutOff",
    "Client",
    "ClientClosed",
    "DeadlineExceeded",
    "Draining",
    "EngineGone",
    "InternalError",
    "Interrupted",
    "InvalidRequest",
    "LimitReached",
    "Many",
    "ModelFailed",
    "ModelNotFound",
    "ModelNotReady",
    "ModelServerAnswered",
    "ModelServerBroken",
    "ModelServerDown",
    "NoFreeLane",
    "Overloaded",
    "RequestError",
    "RequestTooLarge",
    "RingbatchError",
    "StartupError",
    "WorkerDied",
    "endpoints",
    "http_answer",
    "models",
]

if TYPE_CHECKING:
    from ringbatch.frontend.client.bulk import Many
    from ringbatch.frontend.client.client import Client
    from ringbatch.frontend.client.errors import ClientClosed, EngineGone, Interrupted
    from ringbatch.frontend.codec.outcome import InternalError
    from ringbatch.frontend.codec.outcome import outcome as http_answer
    from ringbatch.frontend.routes.endpoints import endpoints
    from ringbatch.frontend.routes.models import models
    from ringbatch.shm.errors import (
        AnswerCutOff,
        DeadlineExceeded,
        Draining,
        InvalidRequest,
        LimitReached,
        ModelFailed,
        ModelNotFound,
        ModelNotReady,
        ModelServerAnswered,
        ModelServerBroken,
        ModelServerDown,
        NoFreeLane,
        Overloaded,
        RequestError,
        RequestTooLarge,
        RingbatchError,
        StartupError,
        WorkerDied,
    )
else:
    _ERRORS = "ringbatch.shm.errors"
    _HOMES = {
        "Client": ("ringbatch.frontend.client.client", "Client"),
        "ClientClosed": ("ringbatch.frontend.client.errors", "ClientClosed"),
        "EngineGone": ("ringbatch.frontend.client.errors", "EngineGone"),
        "InternalError": ("ringbatch.frontend.codec.outcome", "InternalError"),
        "Interrupted": ("ringbatch.frontend.client.errors", "Interrupted"),
        "Many": ("ringbatch.frontend.client.bulk", "Many"),
        "endpoints": ("ringbatch.frontend.routes.endpoints", "endpoints"),
        "http_answer": ("ringbatch.frontend.codec.outcome", "outcome"),
        "models": ("ringbatch.frontend.routes.models", "models"),
    }

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, inner = _HOMES.get(name, (_ERRORS, name))
        found = globals()[name] = getattr(import_module(module), inner)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
