"""Metrics of a model's own code: what `ringbatch.engine.metrics` gives to model files.

A process that holds a model has one `Book`. Until it is opened in a block of the segment, what is
counted stays in the book, and goes into the block with the opening. A child that the process forks
has a book of its own that nobody reads, since a block has one writer.
"""

import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Final, Self, TypeVar

from ringbatch.shm.layout import WORD
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import MOST_TEXT, MOST_VALUES, Metric, OwnMetrics, Series

logger = logging.getLogger("ringbatch.worker")

MOST_LABEL_CHARACTERS: Final = 128
"""Most characters of a label's value; a longer value is cut off."""


class _Metric:
    """Metric, or the series of one that `labels` returns.

    Args:
        book: the book that holds its values.
        metric: its name, kind and labels.
        values: values of its labels; None if `labels` is yet to give them.
    """

    def __init__(self, book: "Book", metric: Metric, values: tuple[str, ...] | None) -> None:
        self._book = book
        self.metric = metric
        self.values = values or ()
        self.place = -1
        """Place of its values in the book; -1 if there was no room for them."""
        self._wants_labels = values is None
        self._by_labels: dict[tuple[str, ...], Self] = {}
        self._lost = False

    def labels(self, *values: object, **named: object) -> Self:
        """Return the series for labels with these values, in their order or by their names.

        The first 128 characters of a value count.

        Raises:
            ValueError: they are not the labels of this metric.
        """
        name, names = self.metric.name, self.metric.labels
        if not self._wants_labels:
            raise ValueError(f"metric {name}: has no labels, or they are said already")
        if named:
            if values or named.keys() != set(names):
                raise ValueError(f"metric {name}: its labels are {', '.join(names)}")
            values = tuple([named[label] for label in names])
        if len(values) != len(names):
            wanted = ", ".join(names)
            raise ValueError(f"metric {name}: {len(values)} values for the labels {wanted}")
        key = tuple([str(value)[:MOST_LABEL_CHARACTERS] for value in values])
        return self._by_labels.get(key) or self._begun(key)

    def _begun(self, key: tuple[str, ...]) -> Self:
        with self._book.lock:
            found = self._by_labels.get(key)
            if found is not None:
                return found
            series = type(self)(self._book, self.metric, key)
            if self._book.begin(series):
                self._by_labels[key] = series
            elif not self._lost:
                self._lost = True
                _log_full(self.metric.name)
        return series

    def _number(self, value: object, wanted: str = "a number") -> float:
        """Return a value as a float, or raise ValueError before it changes any count."""
        if not isinstance(value, str | bytes | bytearray):
            with suppress(OverflowError, TypeError, ValueError):
                return float(value)  # type: ignore[arg-type]
        raise ValueError(f"metric {self.metric.name}: wants {wanted}, not {value!r:.80}")

    def _add(self, at: int, amount: float) -> None:
        """Add to one of its values; the caller has the lock."""
        if self._wants_labels:
            wanted = ", ".join(self.metric.labels)
            raise ValueError(f"metric {self.metric.name}: say labels({wanted}) first")
        if self.place >= 0:
            self._book.values[self.place + at] += amount


class Counter(_Metric):
    """Counter, which only goes up. The counts of all workers are added up."""

    def inc(self, amount: float = 1) -> None:
        """Count.

        Raises:
            ValueError: the amount is no number, negative or not finite, or labels are missing.
        """
        amount = self._number(amount)
        if not 0 <= amount < inf:
            name = self.metric.name
            raise ValueError(f"metric {name}: a counter goes up by 0 or more, not by {amount!r}")
        with self._book.lock:
            self._add(0, amount)


class Gauge(_Metric):
    """Gauge, which goes up and down. Each worker's value is shown until the worker ends."""

    def set(self, value: float) -> None:
        """Set the value.

        Raises:
            ValueError: it is no number, or labels are missing.
        """
        value = self._number(value)
        with self._book.lock:
            self._add(0, 0)
            if self.place >= 0:
                self._book.values[self.place] = value

    def inc(self, amount: float = 1) -> None:
        """Increase the value by an amount; raises as `set` does."""
        amount = self._number(amount)
        with self._book.lock:
            self._add(0, amount)

    def dec(self, amount: float = 1) -> None:
        """Decrease the value by an amount; raises as `set` does."""
        self.inc(-self._number(amount))


class Histogram(_Metric):
    """Histogram of values in buckets. The counts of all workers are added up."""

    def observe(self, value: float) -> None:
        """Count a value in its bucket.

        Raises:
            ValueError: it is no finite number, or labels are missing.
        """
        bounds = self.metric.bounds
        value = self._number(value, "a finite number")
        if not -inf < value < inf:
            name = self.metric.name
            raise ValueError(f"metric {name}: wants a finite number, not {value!r}")
        with self._book.lock:
            self._add(bisect_left(bounds, value), 1)
            self._add(len(bounds) + 1, value)

    @contextmanager
    def time(self) -> Iterator[None]:
        """Return a context manager that observes the seconds in it, whether or not it raises."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.observe((time.perf_counter_ns() - began_ns) / 1e9)


M = TypeVar("M", Counter, Gauge, Histogram)


class Book:
    """Metrics of one process for its model.

    Attributes:
        lock: of all values and series.
        values: of all series, by their places.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._account = 0
        self._named: dict[str, _Metric] = {}
        self._series: list[_Metric] = []
        self._forget_block()

    def _forget_block(self) -> None:
        self._block = OwnMetrics(memoryview(bytearray(OwnMetricWords.SIZE * WORD)), 0)
        self._block.begin(())
        self.values = self._block.values
        self._kept: dict[tuple[Metric, tuple[str, ...]], int] = {}
        """Places of the values that the block was opened with."""

    def forked(self) -> None:
        """Make a forked child count apart from the worker, with a lock of its own.

        A thread that the child does not have may hold the worker's lock.
        """
        self.lock = threading.RLock()
        self._forget_block()

    @property
    def metrics(self) -> list[Metric]:
        """Metrics that the model's code has made."""
        return [one.metric for one in self._named.values()]

    def metric(self, kind: type[M], metric: Metric) -> M:
        """Return the metric of that name; a new one if there was none.

        Raises:
            ValueError: another has the name; the text says which.
        """
        with self.lock:
            found = self._named.get(metric.name)
            if found is not None:
                if not isinstance(found, kind) or found.metric != metric:
                    raise ValueError(
                        f"metric {metric.name}: there is another of that name, a "
                        f"{found.metric.kind} with other labels, buckets or help"
                    )
                return found
            for other in self._named.values():
                if shared := metric.samples & other.metric.samples:
                    raise ValueError(
                        f"metric {metric.name}: the {other.metric.kind} {other.metric.name} has "
                        f"the name {min(shared)} as well"
                    )
            made = kind(self, metric, None if metric.labels else ())
            if not metric.labels and not self.begin(made):
                _log_full(metric.name)
            self._block.declare(replace(metric, account=self._account))
            self._named[metric.name] = made
            return made

    def begin(self, series: _Metric) -> bool:
        """Count in a series from now on; whether there was room for it."""
        metric = replace(series.metric, account=self._account)
        place = self._kept.get((metric, series.values))
        if place is None:
            place = self._block.add(metric, series.values)
        if place is None:
            return False
        series.place = place
        self._series.append(series)
        return True

    def open(self, block: OwnMetrics, account: int, others: set[int]) -> None:
        """Count in a block of the segment from now on, and go on with the counts that stand there.

        Args:
            block: of this worker.
            account: of its model.
            others: accounts of other models. What workers of these had counted in the block stays,
                while it takes half of the room at most; what was counted for models that are gone
                does not.
        """
        with self.lock:
            earlier = {
                (one.metric, one.labels): one.values
                for one in block.read()
                if one.metric.kind != "gauge" and one.metric.account in {account, *others}
            }
            own = []
            for series in self._series:
                metric = replace(series.metric, account=account)
                counted = self.values[series.place : series.place + metric.width].tolist()
                before = earlier.pop((metric, series.values), (0.0,) * metric.width)
                total = tuple([a + b for a, b in zip(before, counted, strict=True)])
                own.append(Series(metric, series.values, total))
            rest = [Series(metric, labels, values) for (metric, labels), values in earlier.items()]
            mine = [one for one in rest if one.metric.account == account]
            theirs = [one for one in rest if one.metric.account != account]
            kept = [*own, *mine, *within(theirs, MOST_VALUES // 2, MOST_TEXT // 2)]
            places = block.begin(kept)
            for series, place in zip(self._series, places, strict=False):
                series.place = -1 if place is None else place
            self._kept = {
                (one.metric, one.labels): place
                for one, place in zip(kept, places, strict=True)
                if place is not None
            }
            for metric in self.metrics:
                block.declare(replace(metric, account=account))
            self._block, self.values, self._account = block, block.values, account

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Drop the counts of a block, as those of a warm-up, which is no request.

        Gauges keep the values that they have then.
        """
        with self.lock:
            seen = self.values
            self.values = memoryview(bytearray(seen)).cast("d")
        try:
            yield
        finally:
            with self.lock:
                for series in self._series:
                    if series.metric.kind == "gauge" and series.place >= 0:
                        seen[series.place] = self.values[series.place]
                self.values = seen

    def clash(self, others: Iterable[tuple[str, Metric]]) -> str:
        """Return why this model's metrics cannot be shown with others; empty if they can.

        Args:
            others: metrics of other models, each with the name of its model.
        """
        for model, other in others:
            for metric in self.metrics:
                same = (metric.name, metric.kind) == (other.name, other.kind)
                if not same and (shared := metric.samples & other.samples):
                    return (
                        f"its metric {metric.name}, a {metric.kind}, and the {other.kind} "
                        f"{other.name} of the model {model!r} both have the name {min(shared)}; "
                        "call one of them otherwise"
                    )
        return ""


def within(series: Sequence[Series], most_values: int, most_text: int) -> list[Series]:
    """Return the first series that take about so many values and bytes of text at most."""
    kept = []
    for one in series:
        most_values -= one.metric.width
        most_text -= 64 + len(one.metric.name + one.metric.says) + len("".join(one.labels))
        if most_values < 0 or most_text < 0:
            break
        kept.append(one)
    return kept


BOOK: Final = Book()
"""Metrics of this process."""
os.register_at_fork(after_in_child=BOOK.forked)


def _log_full(name: str) -> None:
    logger.error(
        "metric %s: there is no room for more series of this model (%d values and %d bytes of "
        "names and labels in each worker); others are not counted",
        name,
        MOST_VALUES,
        MOST_TEXT,
    )
