"""Dynamic batching of prediction requests over shared memory.

This package offers the public names of its parts: those of `ringbatch.engine` for model files, and
those of `ringbatch.frontend` for programs on the same host. It imports each of them at its first
use: every import of a part imports this package too, so it must import no part itself.
"""

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
    "InvalidInput",
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
    "Request",
    "RequestError",
    "RequestTooLarge",
    "RestartWorker",
    "RingbatchError",
    "StartupError",
    "Tensor",
    "WorkerDied",
    "__version__",
    "endpoints",
    "http_answer",
    "metrics",
    "models",
]

if TYPE_CHECKING:
    from ringbatch.engine import InvalidInput, Request, RestartWorker, Tensor, metrics
    from ringbatch.frontend import (
        AnswerCutOff,
        Client,
        ClientClosed,
        DeadlineExceeded,
        Draining,
        EngineGone,
        InternalError,
        Interrupted,
        InvalidRequest,
        LimitReached,
        Many,
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
        endpoints,
        http_answer,
        models,
    )

    __version__: str
else:
    _OF_MODEL_FILES = ("InvalidInput", "Request", "RestartWorker", "Tensor")

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            from importlib.metadata import version

            found = version(__name__)
        elif name == "metrics":
            from ringbatch.engine import metrics as found
        elif name in _OF_MODEL_FILES:
            from ringbatch import engine

            found = getattr(engine, name)
        else:
            from ringbatch import frontend

            found = getattr(frontend, name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
