"""A chart of the page as a picture of its own, for a document that shows pictures alone. Pure.

It has its colours within it, light and dark, and a ground of its own: it is readable wherever it is
shown.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from ringbatch.bench.report import svg
from ringbatch.bench.report.page import Figure
from ringbatch.bench.report.style import CHARTS

_HEAD: Final = 36
_ROW: Final = 22
_LEFT: Final = 20
_LETTER: Final = 7.6
"""Width of one, about."""
_SWATCH: Final = 12
_APART: Final = 20
# Larger than in the page: pictures are shown beside each other.
_STYLE: Final = """svg text { font-size: 15px; } svg text.title { font-weight: 600;
  font-size: 17px; fill: var(--text); } svg .ground { fill: var(--card); stroke: var(--rule); }
"""


def picture(figure: Figure) -> str:
    """Return an SVG file: the title, the chart, and the legend."""
    chart = figure.chart
    legend, rows = _legend(chart.names)
    height = _HEAD + svg.HEIGHT + rows * _ROW + _ROW // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {svg.WIDTH} {height}" '
        f'width="{svg.WIDTH}" height="{height}" role="img" aria-label="{escape(chart.label)}">'
        f"<style>{CHARTS}{_STYLE}</style>"
        f'<rect class="ground" x="0.5" y="0.5" width="{svg.WIDTH - 1}" height="{height - 1}" '
        f'rx="8"/><text class="title" x="{_LEFT}" y="26">{escape(figure.title)}</text>'
        f'<g transform="translate(0 {_HEAD})">{chart.parts}</g>'
        f'<g transform="translate(0 {_HEAD + svg.HEIGHT})">{legend}</g></svg>\n'
    )


def _legend(names: Sequence[str]) -> tuple[str, int]:
    """Return the elements, and how many rows they take."""
    parts, x, row = [], float(_LEFT), 0
    for number, name in enumerate(names):
        width = _SWATCH + 6 + len(name) * _LETTER
        if x > _LEFT and x + width > svg.WIDTH - _LEFT:
            x, row = float(_LEFT), row + 1
        y = row * _ROW
        parts.append(
            f'<rect class="{svg.colour(number)}" x="{x:.0f}" y="{y + 3}" width="{_SWATCH}" '
            f'height="{_SWATCH}" rx="2"/><text x="{x + _SWATCH + 6:.0f}" y="{y + 14}">'
            f"{escape(name)}</text>"
        )
        x += width + _APART
    return "".join(parts), row + 1 if names else 0
