"""Metrics for model files: what a model counts of its own appears beside ringbatch's own metrics.

    from ringbatch.engine import metrics

    cut = metrics.counter("texts_cut", "Texts above the model's length.", labels=["lang"])
    cut.labels("de").inc()

Counters and histograms are added up over all workers of a model, and never go back if a worker
ends or the model is reloaded. A gauge has a value for each worker.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final

from ringbatch.engine.models import model_metrics
from ringbatch.engine.models.model_metrics import Counter, Gauge, Histogram
from ringbatch.shm.model_metrics import Metric

__all__ = ["Counter", "Gauge", "Histogram", "counter", "gauge", "histogram"]

DEFAULT_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
"""Upper bounds of a histogram's buckets, if none are given: for seconds."""
RESERVED: Final = "ringbatch_"
"""So begin the names of ringbatch's own metrics."""
MOST_BUCKETS: Final = 40
OWN_LABELS: Final = ("model", "version", "worker", "le")
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")


def counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
    """Return a counter of the model's own, shown at the control address as ``name_total``.

    It has the labels model and version, and its own.

    Args:
        name: letters, digits and ``_``; with or without ``_total``.
        help: its description, for people.
        labels: names of further labels; series are then counted by `Counter.labels`.

    Raises:
        ValueError: the name is ringbatch's or another metric's, or is no name; the text says which.
    """
    bare = name.removesuffix("_total") if isinstance(name, str) else name
    return model_metrics.BOOK.metric(Counter, _metric("counter", bare, help, labels))


def gauge(name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
    """Return a gauge of the model's own, with a value for each worker; arguments as `counter`."""
    return model_metrics.BOOK.metric(Gauge, _metric("gauge", name, help, labels))


def histogram(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    buckets: Sequence[float] = DEFAULT_BUCKETS,
) -> Histogram:
    """Return a histogram of the model's own.

    Args:
        name, help, labels: as of `counter`.
        buckets: upper bounds, ascending, up to 40; one for all values above them is added.

    Raises:
        ValueError: as of `counter`, or the buckets are not ascending numbers.
    """
    return model_metrics.BOOK.metric(Histogram, _metric("histogram", name, help, labels, buckets))


def _metric(kind: str, name: Any, says: Any, labels: Any, buckets: Any = ()) -> Metric:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"a metric's name has up to 100 letters, digits and _, and begins with no digit; "
            f"not {name!r}"
        )
    if not isinstance(says, str) or not says:
        raise ValueError(f"metric {name}: says nothing of itself; give it a text as help")
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ValueError(f"metric {name}: labels must be a list of names, not {labels!r}")
    if isinstance(buckets, str) or not isinstance(buckets, Sequence):
        raise ValueError(f"metric {name}: buckets must be a list of numbers, not {buckets!r}")
    bounds = [bound for bound in buckets if bound != inf]
    if any(isinstance(b, bool) or not isinstance(b, (int, float)) for b in bounds):
        raise ValueError(f"metric {name}: buckets must be numbers, not {buckets!r}")
    metric = Metric(kind, name, says, 0, tuple(labels), tuple(map(float, bounds)))
    _check(metric)
    return metric


def _check(metric: Metric) -> None:
    name, labels, bounds = metric.name, metric.labels, metric.bounds
    if name.startswith(RESERVED):
        raise ValueError(
            f"metric {name}: names that begin with {RESERVED} are ringbatch's own; "
            "choose another beginning"
        )
    for label in labels:
        if not isinstance(label, str) or not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"metric {name}: {label!r} is no name for a label")
        if label in OWN_LABELS:
            raise ValueError(
                f"metric {name}: the label {label} is ringbatch's own; choose another name"
            )
        if labels.count(label) > 1:
            raise ValueError(f"metric {name}: has the label {label} twice")
    if any(not low < high for low, high in pairwise(bounds)) or len(bounds) > MOST_BUCKETS:
        raise ValueError(
            f"metric {name}: buckets must be at most {MOST_BUCKETS} numbers in ascending order"
        )
    if metric.kind == "histogram" and not bounds:
        raise ValueError(f"metric {name}: needs at least one bucket")
