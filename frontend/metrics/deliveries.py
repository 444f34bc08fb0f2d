"""Metrics of deliveries to other programs: traces, and events of the payload log."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from ringbatch.frontend.metrics.families import Family


class DeliveryCounts(Protocol):
    """Counts since this process began."""

    @property
    def delivered(self) -> int:
        """Items that were taken."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """Items that were not, by the reason."""


def trace_metrics(counts: DeliveryCounts) -> Iterator[Family]:
    """Yield the metrics of traces of requests and of batches."""
    return _metrics("ringbatch_traces_exported", "ringbatch_traces_dropped", "Traces", counts)


def payload_metrics(counts: DeliveryCounts) -> Iterator[Family]:
    """Yield the metrics of events of the payload log."""
    sent, dropped = "ringbatch_payload_events_sent", "ringbatch_payload_events_dropped"
    return _metrics(sent, dropped, "Events of requests and answers", counts)


def _metrics(sent: str, dropped: str, items: str, counts: DeliveryCounts) -> Iterator[Family]:
    family = Family("counter", sent, f"{items} sent.")
    family.add((), counts.delivered)
    yield family
    family = Family("counter", dropped, f"{items} not sent.", labels=["reason"])
    for reason, count in counts.dropped.items():
        family.add([reason], count)
    yield family
