"""Charts as SVG, in the colours of the page. Pure.

A chart is 560 by 320 units, and as wide as the page lets it be. Colours are classes, so that light
and dark are the page's business.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 560
HEIGHT: Final = 320
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 44
COLOURS: Final = 8


@dataclass(frozen=True)
class Line:
    """A line through points, with a name for the legend.

    Attributes:
        name: its name in the legend.
        points: x and y of each.
        marks: tooltips of the points; as many as points, or none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """A drawing, and what its colours stand for.

    Attributes:
        parts: SVG elements, in 560 by 320 units.
        label: description of the drawing for screen readers.
        names: of the colours, in their order.
    """

    parts: str
    label: str
    names: Sequence[str]

    def html(self) -> str:
        """Return the drawing and its legend as HTML, for a page that has the colours."""
        drawing = (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.label)}">'
            f"{self.parts}</svg>"
        )
        items = "".join(
            f'<li><i class="{colour(number)}"></i>{escape(name)}</li>'
            for number, name in enumerate(self.names)
        )
        return f'{drawing}<ul class="legend">{items}</ul>'


@dataclass(frozen=True)
class Axis:
    """Mapping of values to places.

    Attributes:
        title: with the unit.
        low: at the begin.
        high: at the end.
        place: of a value, from 0 to 1.
        ticks: values and their labels.
    """

    title: str
    low: float
    high: float
    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def linear(title: str, values: Sequence[float]) -> Axis:
    """Return an axis from 0 to the largest value."""
    top = max([*values, 0.0]) or 1.0
    step = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if top / s <= 6)
    count = math.ceil(top / step - 1e-9)
    high = count * step
    ticks = [(n * step, short(n * step)) for n in range(count + 1)]
    return Axis(title, 0.0, high, lambda value: value / high, ticks)


def logarithmic(title: str, values: Sequence[float]) -> Axis:
    """Return an axis from the decade below the smallest value to that above the largest."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)
    few = high - low <= 2
    ticks = [
        (factor * 10.0**power, short(factor * 10.0**power))
        for power in range(low, high + 1)
        for factor in ((1, 2, 5) if few else (1,))
        if factor == 1 or power < high
    ]

    def place(value: float) -> float:
        return (math.log10(max(value, 10.0**low)) - low) / (high - low)

    return Axis(title, 10.0**low, 10.0**high, place, ticks)


def by_rarity(title: str, shares: Sequence[float]) -> Axis:
    """Return an axis of shares below 1, on which each nine takes as much room as the one before."""
    most = max([*shares, 0.9])
    decades = -math.log10(1 - most)
    named = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
    ticks = [(share, f"{share * 100:.10g}") for share in named if share <= most + 1e-9]
    return Axis(title, 0.0, most, lambda share: -math.log10(1 - share) / decades, ticks)


def short(value: float) -> str:
    """Return a number in few letters."""
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:.4g}"


def lines(
    x: Axis,
    y: Axis,
    drawn: Sequence[Line],
    *,
    at_x: tuple[float, str] | None = None,
    at_y: tuple[float, str] | None = None,
) -> Chart:
    """Return a chart of lines, with a value marked on either axis on request."""
    parts = [_frame(x, y)]
    if at_y is not None and at_y[0] <= y.high:
        place = _y(y, at_y[0])
        parts.append(
            f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place:.1f}" '
            f'y2="{place:.1f}"/><text class="limit" x="{_LEFT + 6}" y="{place - 5:.1f}">'
            f"{escape(at_y[1])}</text>"
        )
    if at_x is not None and at_x[0] <= x.high:
        place = _x(x, at_x[0])
        end = place > WIDTH * 0.7
        anchor, shift = ("end", -6) if end else ("start", 6)
        parts.append(
            f'<line class="knee" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" '
            f'y2="{HEIGHT - _BOTTOM}"/><text class="knee" text-anchor="{anchor}" '
            f'x="{place + shift:.1f}" y="{_TOP + 12}">{escape(at_x[1])}</text>'
        )
    for number, line in enumerate(drawn):
        places = [(_x(x, a), _y(y, b)) for a, b in line.points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline class="{colour(number)}" points="{path}"/>')
        for (a, b), mark in zip(places, line.marks, strict=False):
            parts.append(
                f'<circle class="{colour(number)}" cx="{a:.1f}" cy="{b:.1f}" r="3.5">'
                f"<title>{escape(mark)}</title></circle>"
            )
    names = [line.name for line in drawn]
    return Chart("".join(parts), f"{y.title} against {x.title}", names)


def bars(title: str, columns: Sequence[tuple[str, dict[str, float]]], x_title: str) -> Chart:
    """Return a drawing of columns of parts that add up."""
    names = list(dict.fromkeys(name for _, parts in columns for name in parts))
    y = linear(title, [sum(parts.values()) for _, parts in columns])
    width = (WIDTH - _LEFT - _RIGHT) / max(len(columns), 1)
    ticks: list[tuple[float, str]] = []
    x = Axis(x_title, 0.0, 1.0, lambda value: value, ticks)
    drawn = [_frame(x, y)]
    for number, (label, parts) in enumerate(columns):
        left = _LEFT + width * (number + 0.15)
        base = 0.0
        for name in names:
            value = parts.get(name, 0.0)
            top, bottom = _y(y, base + value), _y(y, base)
            base += value
            if value > 0:
                drawn.append(
                    f'<rect class="{colour(names.index(name))}" x="{left:.1f}" y="{top:.1f}" '
                    f'width="{width * 0.7:.1f}" height="{bottom - top:.1f}">'
                    f"<title>{escape(f'{label}: {name} {value:.3g}')}</title></rect>"
                )
        drawn.append(
            f'<text text-anchor="middle" x="{left + width * 0.35:.1f}" '
            f'y="{HEIGHT - _BOTTOM + 16}">{escape(label)}</text>'
        )
    return Chart("".join(drawn), f"{title} against {x_title}", names)


def colour(number: int) -> str:
    """Return the class of a colour."""
    return f"c{number % COLOURS}"


def _frame(x: Axis, y: Axis) -> str:
    parts = []
    for value, text in y.ticks:
        place = _y(y, value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place:.1f}" '
            f'y2="{place:.1f}"/><text text-anchor="end" x="{_LEFT - 7}" y="{place + 4:.1f}">'
            f"{escape(text)}</text>"
        )
    for value, text in x.ticks:
        place = _x(x, value)
        parts.append(
            f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" '
            f'y2="{HEIGHT - _BOTTOM}"/><text text-anchor="middle" x="{place:.1f}" '
            f'y="{HEIGHT - _BOTTOM + 16}">{escape(text)}</text>'
        )
    middle_x, middle_y = (_LEFT + WIDTH - _RIGHT) / 2, (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text class="axis" text-anchor="middle" x="{middle_x:.0f}" y="{HEIGHT - 8}">'
        f"{escape(x.title)}</text>"
        f'<text class="axis" text-anchor="middle" transform="translate(14 {middle_y:.0f}) '
        f'rotate(-90)">{escape(y.title)}</text>'
    )
    return "".join(parts)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + min(max(axis.place(value), 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - min(max(axis.place(value), 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM)
