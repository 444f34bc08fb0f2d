"""Metrics of models' own code: counters and histograms summed over workers, gauges for each worker.

If a reload changes the form of a metric, the values of the running workers are shown; those of
earlier workers in another form are left out.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ringbatch.frontend.metrics.families import Family, Kind
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.model_metrics import Metric, OwnMetrics, Series
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment

_KINDS: dict[str, Kind] = {"counter": "counter", "gauge": "gauge", "histogram": "histogram"}
Counted = tuple[str, Series]
"""A series, and the worker that it is of."""


def own_metrics(segment: Segment, accounts: Sequence[ModelSpec]) -> Iterator[Family]:
    """Yield a family for each metric of each model.

    Args:
        segment: attached.
        accounts: an entry of the model table for each account.
    """
    layout, words = segment.layout, segment.words
    owners = {number: spec.account for spec in segment.models for number in spec.workers}
    by_account = {spec.account: spec for spec in accounts}
    live: list[Counted] = []
    earlier: list[Counted] = []
    for number in range(layout.workers):
        runs = words[layout.worker(number) + WorkerWords.STATE] != WorkerState.ABSENT
        for series in OwnMetrics(segment.memory, layout.own_metrics(number)).read():
            account = series.metric.account
            if runs and owners.get(number) == account:
                live.append((str(number), series))
            elif account in by_account and series.metric.kind != "gauge":
                earlier.append((str(number), series))
    yield from merged(live, earlier, by_account)


def merged(
    live: Sequence[Counted], earlier: Sequence[Counted], by_account: dict[int, ModelSpec]
) -> Iterator[Family]:
    """Yield the families of series that were read.

    Args:
        live: of workers that run.
        earlier: of those that had run.
        by_account: the models.
    """
    shown: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[Metric, str, tuple[str, ...]], list[float]]] = {}
    for worker, series in chain(live, earlier):
        metric = series.metric
        first = shown.setdefault(metric.name, metric)
        if (metric.kind, metric.bounds) != (first.kind, first.bounds):
            continue
        # What a metric says of itself may have changed with a reload.
        key = Metric(metric.kind, metric.name, "", metric.account, metric.labels, metric.bounds)
        series_key = key, worker if metric.kind == "gauge" else "", series.labels
        total = sums.setdefault(metric.name, {}).setdefault(series_key, [0.0] * metric.width)
        total[:] = [a + b for a, b in zip(total, series.values, strict=True)]
    for name, metric in shown.items():
        family = Family(_KINDS[metric.kind], name, metric.says)
        for (own, worker, labels), values in sums[name].items():
            spec = by_account[own.account]
            family.take(_lines(own, [spec.name, spec.version, *labels], worker, values))
        yield family


def _lines(metric: Metric, labels: list[str], worker: str, values: list[float]) -> Family:
    names = ["model", "version", *metric.labels]
    if metric.kind == "gauge":
        names, labels = [*names, "worker"], [*labels, worker]
    found = Family(_KINDS[metric.kind], metric.name, "", labels=names)
    if metric.kind == "histogram":
        bounds = [*map(repr, metric.bounds), "+Inf"]
        found.add_histogram(labels, bounds, [int(count) for count in values[:-1]], values[-1])
    else:
        found.add(labels, values[0])
    return found
