"""The busy share of an engine's GPUs during a run, as NVML tells it."""

import threading
from types import TracebackType
from typing import Final, Self

from ringbatch.engine.report.gpus import look
from ringbatch.shm.engines import running
from ringbatch.shm.snapshot.gpus import used_gpus

EVERY_S: Final = 0.25


class GpuBusy:
    """Looks at the GPUs of an engine's workers while a context is open.

    Attributes:
        seen: the busy share at each look; none where NVML does not tell.

    Args:
        pid: of the engine's supervisor.
    """

    def __init__(self, pid: int) -> None:
        self.seen: list[float] = []
        self._pid = pid
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def mean(self) -> float | None:
        """The mean of all looks; None without one."""
        return sum(self.seen) / len(self.seen) if self.seen else None

    def _run(self) -> None:
        with running(self._pid) as (segment, *_):
            segment.read_models()
            while not self._ends.wait(EVERY_S):
                found = [used.gpu.busy for used in used_gpus(segment, look)]
                self.seen += [busy for busy in found if busy is not None]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()
