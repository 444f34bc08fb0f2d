"""What is counted of the model servers that the runtime http asks, for Prometheus."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ringbatch.frontend.metrics.families import Family, Kind
from ringbatch.frontend.metrics.histograms import OF_MODEL
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.upstreams import ServerCounts, Upstreams

_FAMILIES: Final[tuple[tuple[Kind, str, str, Callable[[ServerCounts], float]], ...]] = (
    ("counter", "batches", "Batches sent to a model server.", lambda server: server.batches),
    (
        "counter",
        "failed_batches",
        "Of these, those that it did not answer.",
        lambda server: server.failures,
    ),
    (
        "counter",
        "refused_batches",
        "Of these, those that it turned away with 429 or 503.",
        lambda server: server.refusals,
    ),
    (
        "gauge",
        "up",
        "0 while a model server gets no batch, because it failed.",
        lambda server: int(not server.state.down),
    ),
    (
        "gauge",
        "outstanding_batches",
        "Batches that a model server has now.",
        lambda server: server.state.outstanding,
    ),
    (
        "gauge",
        "answer_seconds",
        "How long a model server takes for a batch, as learned lately; 0 where nothing was.",
        lambda server: server.state.took_ns / 1e9,
    ),
)


def upstream_metrics(segment: Segment, models: Iterable[ModelSpec]) -> Iterator[Family]:
    """The metrics of each model's servers, which are none where its own workers run it."""
    upstreams, now_ns = Upstreams(segment.words, segment.layout), time.monotonic_ns()
    asking = [spec for spec in models if spec.platform == "http"]
    counts = [(spec, upstreams.counts(spec.workers, now_ns)) for spec in asking]
    for kind, name, says, value in _FAMILIES:
        family = Family(kind, f"ringbatch_upstream_{name}", says, labels=[*OF_MODEL, "upstream"])
        for spec, servers in counts:
            for server in servers:
                family.add([spec.name, spec.version, server.name], value(server))
        yield family
