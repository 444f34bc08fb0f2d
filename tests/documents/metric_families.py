"""Every family of metrics that an engine can have, collected from a segment of this process."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from collector_harness import CollectorHarness, eager

from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.frontend.metrics.families import Family
from ringbatch.frontend.metrics.processes import usage
from ringbatch.shm import device_notes
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.snapshot.gpus import Gpu

UUID: Final = 1


class Deliveries:
    delivered: Final = 1
    dropped: Final = {"failed": 1}


def families() -> Iterator[Family]:
    """Yield the families of an engine with a server, actors, rows, a range of workers and logs."""
    segment = CollectorHarness(eager()).segment
    device_notes.write(segment, 0, "", UUID)
    segment.words[segment.layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
    figures = {UUID: Gpu("GPU-1", 0.5, 1, 2, 50, ())}
    metrics = EngineMetrics(
        segment, "1", traces=Deliveries(), payloads=Deliveries(), look=lambda _: figures
    )
    (spec,) = segment.models
    spec = replace(spec, platform="http", most=2, remote=(0,), places=1)
    segment.models = (spec,)
    segment.read_models = lambda: 0  # type: ignore[method-assign]
    return metrics.collect(usage(os.getpid()))
