"""What became of traces, where requests are traced."""

from collections.abc import Iterator

from ringbatch.frontend.metrics.families import Family
from ringbatch.frontend.tracing.counts import TraceCounts


def trace_metrics(counts: TraceCounts) -> Iterator[Family]:
    """Traces of requests and of batches: those that were sent, and those that were not."""
    exported = Family("counter", "ringbatch_traces_exported", "Traces sent.")
    exported.add((), counts.exported)
    yield exported
    dropped = Family("counter", "ringbatch_traces_dropped", "Traces not sent.", labels=["reason"])
    for reason, count in counts.dropped.items():
        dropped.add([reason], count)
    yield dropped
