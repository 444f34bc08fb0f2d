"""The processes that batch and run: collector, workers and their supervisor.

A model file imports from here what it needs to describe itself.
"""

from ringbatch.engine.models.model import InvalidInput, RestartWorker
from ringbatch.engine.models.request_context import Request
from ringbatch.shm.tensor import Tensor

__all__ = ["InvalidInput", "Request", "RestartWorker", "Tensor"]
