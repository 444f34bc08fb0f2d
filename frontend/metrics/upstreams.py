"""Metrics of the model servers that the runtime http asks, for Prometheus."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ringbatch.frontend.metrics.families import Family
from ringbatch.frontend.metrics.histograms import OF_MODEL
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.upstreams import SentCounts, ServerState, Upstreams

_COUNTERS: Final[tuple[tuple[str, str, Callable[[SentCounts], int]], ...]] = (
    ("batches", "Batches sent to a model server.", lambda sent: sent.batches),
    ("failed_batches", "Batches that a model server did not answer.", lambda sent: sent.failures),
    (
        "refused_batches",
        "Batches that a model server refused with 429 or 503.",
        lambda sent: sent.refusals,
    ),
)
_GAUGES: Final[tuple[tuple[str, str, Callable[[ServerState], float]], ...]] = (
    (
        "up",
        "0 while a model server gets no batches because it failed.",
        lambda state: int(not state.down),
    ),
    (
        "outstanding_batches",
        "Batches that a model server has now.",
        lambda state: state.outstanding,
    ),
    (
        "answer_seconds",
        "Recent time of a batch at a model server; 0 if unknown.",
        lambda state: state.took_ns / 1e9,
    ),
)


def upstream_metrics(segment: Segment, models: Iterable[ModelSpec]) -> Iterator[Family]:
    """Yield the metrics of each model's servers; none if its own workers run it.

    Counters are of each worker: a sum over the present workers would fall with each that goes.
    """
    upstreams, now_ns = Upstreams(segment.words, segment.layout), time.monotonic_ns()
    asking = [spec for spec in models if spec.platform == "http"]
    sent = [
        ([spec.name, spec.version, own.name, str(number)], own)
        for spec in asking
        for number in spec.workers
        for own in upstreams.sent_by(number).values()
    ]
    labels = [*OF_MODEL, "upstream"]
    for name, help_text, value_of in _COUNTERS:
        family = Family(
            "counter", f"ringbatch_upstream_{name}", help_text, labels=[*labels, "worker"]
        )
        for values, own in sent:
            family.add(values, value_of(own))
        yield family
    counts = [(spec, upstreams.counts(spec.workers, now_ns)) for spec in asking]
    for name, help_text, holds in _GAUGES:
        family = Family("gauge", f"ringbatch_upstream_{name}", help_text, labels=labels)
        for spec, servers in counts:
            for server in servers:
                family.add([spec.name, spec.version, server.name], holds(server.state))
        yield family
