"""Busy share of an engine's GPUs during a run, as NVML tells it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ringbatch.engine.report.gpus import look
from ringbatch.shm.engines import running
from ringbatch.shm.snapshot.gpus import used_gpus

EVERY_S: Final = 0.25


@contextmanager
def gpu_busy(pid: int) -> Iterator[Sequence[float]]:
    """Look at the GPUs of an engine's workers meanwhile; yield the busy share at each look.

    Args:
        pid: of the engine's supervisor.
    """
    seen: list[float] = []
    ends = threading.Event()

    def watch() -> None:
        with running(pid) as (segment, *_):
            segment.read_models()
            while not ends.wait(EVERY_S):
                found = [used.gpu.busy for used in used_gpus(segment, look)]
                seen.extend(busy for busy in found if busy is not None)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ends.set()
        thread.join()


def mean(seen: Sequence[float]) -> float | None:
    """Return the mean of all looks; None where NVML has told nothing."""
    return sum(seen) / len(seen) if seen else None
