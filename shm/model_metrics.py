"""Metrics of the models' code in the segment: a block for each worker.

A block has two copies, and a word that says which is valid. A copy is a text, which only grows, and
values of 8 bytes, which are changed in place. The text has a line for each metric, and one for each
of its series:

    ["counter", "texts_cut", "Texts above the limit.", account, ["lang"], []]
    [0, ["de"]]

The second begins with the number of its metric. Series have their values in the order of their
lines. A counter and a gauge have one value. A histogram has one for each bucket, the last of them
without a bound, and the sum of the observed values.

A worker that replaces another copies its counts into the other copy, so that counters never go
back, and then makes that copy the valid one. A reader meanwhile sees the old or the new.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ringbatch.shm.descriptors import PAIR
from ringbatch.shm.layout import WORD
from ringbatch.shm.memory_order import is_unchanged, load_acquire, release_fence, store_release
from ringbatch.shm.model_metric_words import OwnMetricWords

MOST_VALUES: Final = 512
"""Most values of all series of one worker."""
KINDS: Final = ("counter", "gauge", "histogram")

_TEXT_BYTES: Final = 0
_VALUES: Final = PAIR
_TEXT: Final = _VALUES + MOST_VALUES
MOST_TEXT: Final = (OwnMetricWords.COPY_SIZE - _TEXT) * WORD
"""Bytes of the text."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a model's code.

    Attributes:
        kind: one of `KINDS`.
        name: as it is shown; of a counter without ``_total``.
        says: the description, for people.
        account: of the model, see `ringbatch.shm.model_spec.ModelSpec.account`.
        labels: their names.
        bounds: upper ones of a histogram's buckets, ascending, without the last.
    """

    kind: str
    name: str
    says: str
    account: int
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Number of values of each of its series."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    @property
    def samples(self) -> set[str]:
        """The names that it takes where metrics are shown."""
        suffixes = {"counter": ("_total",), "gauge": (), "histogram": ("_bucket", "_count", "_sum")}
        return {self.name, *(self.name + suffix for suffix in suffixes[self.kind])}


@dataclass(frozen=True, slots=True)
class Series:
    """A metric for labels with these values, and what was counted."""

    metric: Metric
    labels: tuple[str, ...]
    values: tuple[float, ...]


class OwnMetrics:
    """The block of one worker; that worker alone writes it.

    Args:
        memory: the segment, or other memory that holds the block.
        first: its first word in there.

    Attributes:
        values: of the copy that holds.
    """

    def __init__(self, memory: memoryview, first: int) -> None:
        size = OwnMetricWords.SIZE * WORD
        self._memory = memory[first * WORD : first * WORD + size]
        self._words = self._memory.cast("Q")
        self._metrics: dict[Metric, int] = {}
        self._used = 0
        self._take_copy()

    def _take_copy(self) -> None:
        number = self._words[OwnMetricWords.COPY]
        self._copy = OwnMetricWords.COPIES + number % 2 * OwnMetricWords.COPY_SIZE
        self.values = self._values(self._copy)

    def _values(self, copy: int) -> "memoryview[float]":
        start = (copy + _VALUES) * WORD
        return self._memory[start : start + MOST_VALUES * WORD].cast("d")

    def begin(self, kept: Iterable[Series]) -> list[int | None]:
        """Have another copy hold, with these series.

        Returns:
            Where the values of each are; None if there was no room for it.
        """
        number = self._words[OwnMetricWords.COPY] + 1
        # A reader of this copy's last use must see that it holds no more before it is written.
        release_fence()
        self._copy = OwnMetricWords.COPIES + number % 2 * OwnMetricWords.COPY_SIZE
        self._words[self._copy + _TEXT_BYTES] = 0
        self.values = self._values(self._copy)
        self._metrics, self._used = {}, 0
        places = [self.add(one.metric, one.labels, one.values) for one in kept]
        store_release(self._words, OwnMetricWords.COPY, number)
        return places

    def add(
        self, metric: Metric, labels: tuple[str, ...], values: Sequence[float] = ()
    ) -> int | None:
        """Begin a series that is not there yet.

        Args:
            metric: its metric.
            labels: the values of these.
            values: that it begins with; by default all are 0.

        Returns:
            Where its values are; None if there is no room for it.
        """
        lines = "" if metric in self._metrics else _line_of(metric)
        number = self._metrics.get(metric, len(self._metrics))
        lines += f"{json.dumps([number, labels])}\n"
        if self._used + metric.width > MOST_VALUES or not self._has_room(lines):
            return None
        place, self._used = self._used, self._used + metric.width
        for at, value in enumerate(values or (0.0,) * metric.width, place):
            self.values[at] = value
        self._metrics[metric] = number
        self._append(lines)
        return place

    def declare(self, metric: Metric) -> None:
        """Declare a metric, which may have no series yet, if there is room."""
        lines = _line_of(metric)
        if metric not in self._metrics and self._has_room(lines):
            self._metrics[metric] = len(self._metrics)
            self._append(lines)

    def _has_room(self, lines: str) -> bool:
        return self._words[self._copy + _TEXT_BYTES] + len(lines.encode()) <= MOST_TEXT

    def _append(self, lines: str) -> None:
        text, end = lines.encode(), self._words[self._copy + _TEXT_BYTES]
        start = (self._copy + _TEXT) * WORD + end
        self._memory[start : start + len(text)] = text
        store_release(self._words, self._copy + _TEXT_BYTES, end + len(text))

    def metrics(self) -> list[Metric]:
        """Return the metrics so far; none if the block makes no sense."""
        return self._parsed()[0]

    def read(self) -> list[Series]:
        """Return the series so far; none if the block makes no sense."""
        return self._parsed()[1]

    def _parsed(self) -> tuple[list[Metric], list[Series]]:
        words = self._words
        while True:
            number = load_acquire(words, OwnMetricWords.COPY)
            if not number:
                return [], []
            copy = OwnMetricWords.COPIES + number % 2 * OwnMetricWords.COPY_SIZE
            size = min(load_acquire(words, copy + _TEXT_BYTES), MOST_TEXT)
            start = (copy + _TEXT) * WORD
            text = bytes(self._memory[start : start + size])
            values = self._values(copy).tolist()
            # It is not written over before another one holds.
            if is_unchanged(words, OwnMetricWords.COPY, number):
                return _parsed(text, values)


def _line_of(metric: Metric) -> str:
    own = [metric.kind, metric.name, metric.says, metric.account, metric.labels, metric.bounds]
    return f"{json.dumps(own)}\n"


def _parsed(text: bytes, values: Sequence[float]) -> tuple[list[Metric], list[Series]]:
    metrics: list[Metric] = []
    found: list[Series] = []
    place = 0
    try:
        for line in text.splitlines():
            fields = json.loads(line)
            if isinstance(fields[0], str):
                kind, name, says, account, labels, bounds = fields
                metrics.append(Metric(kind, name, says, account, tuple(labels), tuple(bounds)))
                continue
            metric = metrics[fields[0]]
            own = tuple(values[place : place + metric.width])
            place += metric.width
            found.append(Series(metric, tuple(fields[1]), own))
    except (ValueError, LookupError, TypeError):
        # The code of a model can write anywhere in its process.
        return [], []
    return metrics, found
