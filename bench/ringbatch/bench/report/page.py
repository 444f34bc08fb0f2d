"""The result as one page that needs nothing else: charts, tables, light and dark, small and large.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from ringbatch.bench.report import svg, words
from ringbatch.bench.report.point import Point
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.style import CHARTS

_STYLE: Final = """
* { box-sizing: border-box; }
body { margin: 0; padding: 1.2rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1rem; margin: 0 0 .2rem; }
p { margin: .3rem 0; } .soft, figcaption { color: var(--soft); font-size: .87rem; }
.knee-words { font-size: 1.15rem; } .alarm { color: var(--alarm); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 1rem; margin: 1rem 0; }
figure, .card { margin: 0; padding: .9rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; min-width: 0; }
svg { width: 100%; height: auto; display: block; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .4rem 0 0;
  padding: 0; font-size: .87rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  border-radius: 2px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
@media (max-width: 560px) { body { padding: .6rem; } svg text { font-size: 17px; } }
"""
_LEGENDS: Final = "".join(
    f".legend i.{svg.colour(n)} {{ background: var(--c{n}); }}\n" for n in range(svg.COLOURS)
)
LATENCY: Final = "Throughput against latency"
STAGES: Final = "Where the time of a request goes"
_PERCENTILES: Final = ("p50 ms", "p90 ms", "p99 ms")
_PERCENTILES_OF_PARTS: Final = ("first p50 ms", "first p99 ms", "gap p50 ms", "gap p99 ms")


@dataclass(frozen=True)
class Figure:
    """A chart of the page.

    Attributes:
        title: above it.
        chart: the drawing.
        about: what has to be known of it.
    """

    title: str
    chart: svg.Chart
    about: str


def page(result: Result) -> str:
    """Return the page, as HTML."""
    title = escape(f"ringbatch bench: {result.model}")
    alarms = "".join(f'<p class="alarm">{escape(text)}</p>' for text in result.warnings)
    charts = "".join(
        f"<figure><h2>{escape(figure.title)}</h2>{figure.chart.html()}"
        f"<figcaption>{escape(figure.about)}</figcaption></figure>"
        for figure in figures(result)
    )
    remarks = "".join(f"<li>{escape(text)}</li>" for text in words.remarks(result))
    notes = f'<div class="card"><h2>To be known</h2><ul class="soft">{remarks}</ul></div>'
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{title}</title>'
        f"<style>{CHARTS}{_STYLE}{_LEGENDS}</style></head><body><main><h1>{title}</h1>{alarms}"
        f'<p class="knee-words">{escape(words.headline(result))}</p>'
        f'<p class="soft">{escape(words.host(result))}</p>'
        f'<div class="charts">{charts}</div>'
        f'<div class="card scroll">{_table(result)}</div>'
        f"{notes if remarks else ''}"
        f'<p class="soft">{escape(words.method(result))}</p></main></body></html>\n'
    )


def _table(result: Result) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in words.heading(result))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in words.rows(result)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def figures(result: Result) -> list[Figure]:
    """Return the figures of the page, without those that have no data."""
    valid_points = result.valid_points
    found = []
    if valid_points:
        found += [_latency(result, valid_points), _goodput(result, valid_points)]
    if any(point.curve for point in valid_points):
        found.append(_distribution(valid_points))
    seen = [point for point in valid_points if point.observed is not None]
    if seen:
        found += [_batches(seen), _cpu(seen), _stages(seen), _reasons(seen)]
    return found


def _latency(result: Result, valid_points: list[Point]) -> Figure:
    # The knee is shown even where all runs at it are void.
    answered = [point.figures["rate /s"] for point in valid_points]
    x = svg.linear("answered requests/s", [*answered, result.knee_per_s or 0.0])
    drawn = []
    for name in _PERCENTILES_OF_PARTS if result.in_parts else _PERCENTILES:
        points = [
            (point.figures["rate /s"], point.figures[name], point.asked.title)
            for point in valid_points
            if name in point.figures
        ]
        marks = [f"{title}: {name[:-3]} {y:.3g} ms" for _, y, title in points]
        drawn.append(svg.Line(name[:-3], [(a, b) for a, b, _ in points], marks))
    values = [y for line in drawn for _, y in line.points]
    limit_ms = result.slo.gap_ms or result.slo.whole_ms or 0.0
    y = svg.logarithmic("ms", [*values, limit_ms])
    knee = result.knee_per_s
    limit = "limit of gaps" if result.in_parts else "limit"
    at = None if knee is None else (knee, f"knee {svg.short(knee)}/s")
    chart = svg.lines(x, y, drawn, at_x=at, at_y=(limit_ms, f"{limit} {limit_ms:g} ms"))
    about = "Times count from the instant at which a request was due. Where the line turns back, "
    return Figure(LATENCY, chart, about + "more was asked than is answered.")


def _goodput(result: Result, valid_points: list[Point]) -> Figure:
    asked = [point.asked.rate_per_s or 0.0 for point in valid_points]
    good = [point.figures["goodput /s"] for point in valid_points]
    answered = [point.figures["rate /s"] for point in valid_points]
    x = svg.linear("asked requests/s", asked)
    y = svg.linear("requests/s", [*good, *answered])
    titles = [point.asked.title for point in valid_points]
    drawn = [
        svg.Line(
            name,
            list(zip(asked, values, strict=True)),
            [f"{t} asked: {v:,.0f}/s" for t, v in zip(titles, values, strict=True)],
        )
        for name, values in (
            (result.slo.good, good),
            ("answered at all, in the run", answered),
        )
    ]
    return Figure("Goodput", svg.lines(x, y, drawn), "Right answers in each second of the run.")


def _distribution(valid_points: list[Point]) -> Figure:
    drawn = [svg.Line(point.asked.title, point.curve) for point in valid_points if point.curve]
    x = svg.by_rarity("percentile", [share for line in drawn for share, _ in line.points])
    y = svg.logarithmic("ms", [ms for line in drawn for _, ms in line.points])
    about = "Each line ends where there are too few samples to go on."
    return Figure("Latency by percentile", svg.lines(x, y, drawn), about)


def _column(point: Point) -> str:
    return svg.short(point.asked.rate_per_s or 0.0)


def _batches(seen: list[Point]) -> Figure:
    columns = [
        (_column(point), {"instances in a batch": point.figures["batch size"]}) for point in seen
    ]
    chart = svg.bars("instances, mean", columns, "asked requests/s")
    return Figure("Batch size", chart, "More is asked, more are together.")


def _reasons(seen: list[Point]) -> Figure:
    columns = [(_column(p), _shares(p.observed.reasons)) for p in seen if p.observed]
    chart = svg.bars("% of batches", columns, "asked requests/s")
    return Figure("Why batches were closed", chart, "idle: a worker had nothing to do.")


def _cpu(seen: list[Point]) -> Figure:
    columns = [(_column(point), point.observed.cpu_us) for point in seen if point.observed]
    chart = svg.bars("µs of CPU a request", columns, "asked requests/s")
    about = "Of answered requests; at low rates idle wake-ups count too."
    return Figure("CPU time by process", chart, about)


def _stages(seen: list[Point]) -> Figure:
    columns = [(_column(p), _shares(p.observed.stages_ms)) for p in seen if p.observed]
    chart = svg.bars("% of the mean time", columns, "asked requests/s")
    about = "Inside the server, from a request's first byte to its answer."
    return Figure(STAGES, chart, about)


def _shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Return values in percent of their sum."""
    total = sum(parts.values()) or 1.0
    return {name: value / total * 100 for name, value in parts.items()}
