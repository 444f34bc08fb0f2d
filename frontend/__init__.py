"""Frontends between clients and the ring: HTTP and gRPC servers, and a client in Python.

A program on the same host imports from here what it needs to use the engine.
"""

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
