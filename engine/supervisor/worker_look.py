"""Worker look: base of what looks at an engine's workers from time to time."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.segment import Segment


class WorkerLook(ABC):
    """Regular look at the workers of one engine, with an instant for the next.

    Attributes:
        next_ns: when to look next; None while there is nothing to look for.

    Args:
        segment: the engine's.
        served: its models.
        pool: its workers.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        segment: Segment,
        served: ServedModels,
        pool: WorkerPool,
        clock_ns: Callable[[], int],
    ) -> None:
        self.next_ns: int | None = None
        self._segment = segment
        self._served = served
        self._pool = pool
        self._clock_ns = clock_ns

    @abstractmethod
    def step(self) -> None:
        """Look, if it is time to."""
