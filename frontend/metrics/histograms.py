"""Metrics of requests and batches: outcomes, times, reasons, sizes, classes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ringbatch.frontend.metrics.families import Family
from ringbatch.shm.counters import ROWS_BUCKETS, ModelCounter
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.tallies import CODE_LABELS, REFUSALS, Ends, Protocol, ends_of
from ringbatch.shm.time_buckets import BOUNDS_S

OF_MODEL: Final = ["model", "version"]
_NS: Final = 1e-9
_CODES: Final = ("200", *CODE_LABELS)
_FROM_THE_FIRST: Final = {"200", "400", "500", "503", "504"}
"""Statuses that are there with the first request over a protocol: of a series that begins with its
first failure, no rate shows that one."""
_TIME_BOUNDS: Final = [*(f"{bound_s:g}" for bound_s in BOUNDS_S), "+Inf"]
_ROW_BOUNDS: Final = [*(f"{1 << bucket}.0" for bucket in range(ROWS_BUCKETS - 1)), "+Inf"]


def request_metrics(segment: Segment, accounts: Sequence[ModelSpec]) -> Iterator[Family]:
    """Yield metrics of requests as their clients saw them.

    Args:
        segment: attached.
        accounts: an entry of the table for each account.
    """
    nobody = segment.layout.models
    found = ends_of(segment, [*(spec.account for spec in accounts), nobody])
    requests = Family(
        "counter",
        "ringbatch_requests",
        "Requests that have ended, by protocol and status; model is empty for other requests.",
        labels=[*OF_MODEL, "protocol", "code"],
    )
    times = Family(
        "histogram",
        "ringbatch_request_seconds",
        "Time from acceptance to the answer, of requests answered with 200.",
        labels=OF_MODEL,
    )
    refused = Family(
        "counter",
        "ringbatch_model_class_refused",
        "Requests answered with 429 or 503, by class.",
        labels=[*OF_MODEL, "class", "code"],
    )
    first_parts = Family(
        "histogram",
        "ringbatch_first_part_seconds",
        "Time from acceptance to the first part, of answers in parts.",
        labels=OF_MODEL,
    )
    gaps = Family(
        "histogram",
        "ringbatch_part_gap_seconds",
        "Time between two parts of an answer, as the frontend gets them.",
        labels=OF_MODEL,
    )
    for spec in accounts:
        ends = found[spec.account]
        for name, counts in ends.refused.items():
            for code, count in zip(REFUSALS, counts, strict=True):
                refused.add([spec.name, spec.version, name, str(code)], count)
        _add_codes(requests, [spec.name, spec.version], ends)
        labels = [spec.name, spec.version]
        times.add_histogram(labels, _TIME_BOUNDS, ends.times, ends.answered_ns * _NS)
        if spec.in_parts:
            firsts_s, gaps_s = ends.first_parts_ns * _NS, ends.gaps_ns * _NS
            first_parts.add_histogram(labels, _TIME_BOUNDS, ends.first_parts, firsts_s)
            gaps.add_histogram(labels, _TIME_BOUNDS, ends.gaps, gaps_s)
    _add_codes(requests, ["", ""], found[nobody])
    yield requests
    yield times
    yield first_parts
    yield gaps
    yield refused


def _add_codes(family: Family, labels: list[str], ends: Ends) -> None:
    for protocol in Protocol:
        counts = ends.codes[protocol]
        if any(counts):
            for code, count in zip(_CODES, counts, strict=True):
                if count or code in _FROM_THE_FIRST:
                    family.add([*labels, protocol.name.lower(), code], count)


def model_metrics(models: Iterable[tuple[ModelSpec, Counted]]) -> Iterator[Family]:
    """Yield metrics of waits, of batches and of classes, for each account."""
    waits = Family(
        "histogram",
        "ringbatch_model_queue_seconds",
        "Time from acceptance to the first dispatch, of requests or their parts.",
        labels=OF_MODEL,
    )
    runs = Family(
        "histogram",
        "ringbatch_model_run_seconds",
        "Time of batches inside the model.",
        labels=OF_MODEL,
    )
    rows = Family(
        "histogram",
        "ringbatch_model_batch_instances",
        "Instances in a dispatched batch.",
        labels=OF_MODEL,
    )
    batches = Family(
        "counter",
        "ringbatch_model_batches",
        "Dispatched batches, by the reason why they closed.",
        labels=[*OF_MODEL, "reason"],
    )
    of_class = [*OF_MODEL, "class"]
    class_parts, class_waits, class_runs = (
        Family("counter", f"ringbatch_model_class_{name}", help_text, labels=of_class)
        for name, help_text in (
            ("parts", "Requests or their parts that were dispatched, without retries, by class."),
            ("queue_seconds", "Time from acceptance to the first dispatch, summed over these."),
            ("run_seconds", "Time inside the model; classes share that of a mixed batch."),
        )
    )
    for spec, counted in models:
        labels = [spec.name, spec.version]
        for name, own in counted.classes.items():
            class_parts.add([*labels, name], own.parts)
            class_waits.add([*labels, name], own.wait_ns * _NS)
            class_runs.add([*labels, name], own.run_ns * _NS)
        for family, bounds, counts, total in (
            (waits, _TIME_BOUNDS, counted.waits, counted.wait_ns * _NS),
            (runs, _TIME_BOUNDS, counted.runs, counted.run_ns * _NS),
            (rows, _ROW_BOUNDS, counted.batch_rows, counted[ModelCounter.DISPATCHED_ROWS]),
        ):
            family.add_histogram(labels, bounds, counts, total)
        for reason, count in zip(Reason, counted.batches, strict=True):
            batches.add([*labels, reason.name.lower()], count)
    yield waits
    yield runs
    yield rows
    yield batches
    yield class_parts
    yield class_waits
    yield class_runs
