"""Metrics as text: Prometheus' own format and OpenMetrics.

Ten thousand lines are written in the time of ten requests, so a family is lines from the start.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram", "info"]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SUFFIXES: Final[dict[Kind, str]] = {
    "counter": "_total",
    "gauge": "",
    "histogram": "",
    "info": "_info",
}


class _FallingSum(str):
    """Lines of a sum that may fall. OpenMetrics allows no sum beside buckets of negative values."""

    __slots__ = ()


class Family:
    """Prometheus metric family: a metric with a line for each combination of labels.

    Args:
        kind: counter, gauge, histogram or info.
        name: without the suffix of its kind.
        help_text: description of the metric.
        labels: names of the labels.
    """

    __slots__ = ("_labels", "_lines", "_sample", "help_text", "kind", "name")

    def __init__(self, kind: Kind, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self._labels = labels
        self._sample = name + _SUFFIXES[kind]
        self._lines: list[str] = []

    def add(self, values: Sequence[str], value: float) -> None:
        """Add a value for labels with these values."""
        self._lines.append(f"{self._sample}{_braced(self._pairs(values))} {value!r}\n")

    def add_histogram(
        self, values: Sequence[str], bounds: Sequence[str], counts: Sequence[int], total: float
    ) -> None:
        """Add a distribution.

        Args:
            values: of the labels.
            bounds: upper ones of its buckets, the last of them +Inf.
            counts: count of each bucket alone, not cumulated.
            total: the sum of all that was observed.
        """
        name, pairs, below = self.name, self._pairs(values), 0
        start = f'{name}_bucket{{{pairs}{"," * bool(pairs)}le="'
        for bound, count in zip(bounds, counts, strict=True):
            below += count
            self._lines.append(f'{start}{bound}"}} {below}\n')
        braced = _braced(pairs)
        sums = f"{name}_count{braced} {below}\n{name}_sum{braced} {total!r}\n"
        falls = total < 0 or float(bounds[0]) < 0
        self._lines.append(_FallingSum(sums) if falls else sums)

    def take(self, other: "Family") -> None:
        """Add the lines of another family, which may have other labels."""
        self._lines += other._lines

    def _pairs(self, values: Sequence[str]) -> str:
        given = zip(self._labels, values, strict=True)
        return ",".join([f'{label}="{_escaped(value)}"' for label, value in given])

    def text(self, *, as_open: bool) -> str:
        """Return the lines, in OpenMetrics or else in Prometheus' own format."""
        name, kind, lines = self.name, self.kind, self._lines
        if as_open and kind == "histogram":
            lines = [line for line in lines if not isinstance(line, _FallingSum)]
        if not as_open:
            name, kind = self._sample, "gauge" if kind == "info" else kind
        help_text = self.help_text.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{''.join(lines)}"


def gauge(name: str, help_text: str, value: float) -> Family:
    """Return a gauge without labels."""
    family = Family("gauge", name, help_text)
    family.add((), value)
    return family


def encoded(families: Iterable[Family], accepted: str) -> tuple[bytes, str]:
    """Return metrics as text, and its content type.

    Args:
        families: in order.
        accepted: what the client accepts, as its header says.
    """
    as_open = "application/openmetrics-text" in accepted
    text = "".join([family.text(as_open=as_open) for family in families])
    if as_open:
        return f"{text}# EOF\n".encode(errors="replace"), OPEN
    return text.encode(errors="replace"), TEXT


def _braced(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
