"""Result in words and rows, for both documents. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from ringbatch.bench.report.point import NOTICED_SHARE, Point
from ringbatch.bench.report.result import Result

_COLUMNS: Final = {
    "answered/s": "rate /s",
    "goodput/s": "goodput /s",
    "p50 ms": "p50 ms",
    "p99 ms": "p99 ms",
    "p99.9 ms": "p99.9 ms",
    "batch": "batch size",
    "CPU µs a request": "cpu us",
}
"""The heading of each figure."""
_COLUMNS_OF_PARTS: Final = {
    "answered/s": "rate /s",
    "goodput/s": "goodput /s",
    "parts/s": "parts /s",
    "first p50 ms": "first p50 ms",
    "first p99": "first p99 ms",
    "gap p50": "gap p50 ms",
    "gap p99": "gap p99 ms",
    "whole p50": "p50 ms",
    "whole p99": "p99 ms",
    "cut off": "cut off answers",
    "failed": "failed answers",
    "short": "short answers",
    "CPU µs a request": "cpu us",
}
_WAYS = {"grpc": "over gRPC", "client": "through shared memory, by a Client"}


def heading(result: Result) -> tuple[str, ...]:
    """Return the heading of the table; the first column has none."""
    return ("", *_columns(result))


def _columns(result: Result) -> Mapping[str, str]:
    return _COLUMNS_OF_PARTS if result.in_parts else _COLUMNS


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return a row for each kind of run; it says if that is void."""
    names = [*_columns(result).values()]
    return [_row(point, names) for point in (result.lone, result.closed, *result.points)]


def _row(point: Point, names: Sequence[str]) -> tuple[str, ...]:
    if point.void:
        return (point.asked.title, "void", *[""] * (len(names) - 1))
    return (point.asked.title, *(number(point.figures.get(name)) for name in names))


def number(value: float | None) -> str:
    """Return a figure with three digits; empty if there is none."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def headline(result: Result) -> str:
    """Return the knee in a sentence, after a warning if other work was measured too.

    It is empty if no knee was sought.
    """
    found = knee(result)
    if not found or result.others_share <= NOTICED_SHARE:
        return found
    beside = f"Beside other work, which took up to {result.others_share:.0%} of the CPUs in a run:"
    return f"{beside} {found[0].lower()}{found[1:]}"


def knee(result: Result) -> str:
    """Return the knee in a sentence; empty if none was sought."""
    if not result.knee:
        return ""
    limit = result.slo.words
    why = result.knee.get("why") or ""
    sought, settled = result.knee.get("rate_per_s"), result.knee_per_s
    if (refuted := result.refuted_per_s) is not None:
        least = "No rate is" if settled is None else f"{number(settled)} requests/s are"
        return (
            f"{least} answered with {limit} in all runs: the short search found {number(sought)}, "
            f"but in the rounds {number(refuted)} were not."
        )
    if settled is None:
        return f"There is no rate with {limit}: {why}."
    found = f"{number(settled)} requests/s are answered with {limit}"
    if settled != sought:
        before = f"found {number(sought)}" if sought else f"found none: {why}"
        return f"{found} in the rounds; the short search before them {before}."
    missed = result.knee.get("missed_per_s")
    above = f", {number(missed)} are not" if missed and not why else ""
    return f"{found}{above}{f'; {why}' if why else ''}."


def host(result: Result) -> str:
    """Return the machine and the versions, in a sentence."""
    machine = result.machine
    compiled = "compiled" if machine["compiled"] else "not compiled"
    return (
        f"{machine['cpu']}, {machine['cores']} CPUs, {machine['memory_mib']:,} MiB, Linux "
        f"{machine['kernel']}; Python {machine['python']}, ringbatch {machine['ringbatch']}, "
        f"{compiled}; load average {machine['load_average']} before."
    )


def method(result: Result) -> str:
    """Return the method of the measurement, in sentences."""
    used = result.settings
    compared = "compared with the first one" if used["answers_compared"] else "held to status 200"
    way = _WAYS.get(used["protocol"]) or f"to {used['path']}"
    # Older results do not mention heads: all their requests have the same.
    events = " that ask for events" if result.in_parts else ""
    heads = ", a traceparent of its own in each" if used.get("heads") == "own" else ""
    return (
        f"{result.started_utc}. Requests {way}{events}, {used['requests']}, of up to "
        f"{used['request_bytes']:,} bytes{heads}; {used['arrivals']} arrivals, times from the "
        f"instant at which each was due; {used['rounds']} interleaved rounds of "
        f"{used['seconds']:g} s or longer, engines: {used['engines']}; answers {compared}. Runs in "
        f"which the p99 of the generator's own lag was above {used['lag_max_ms']:g} ms are void. "
        "Percentiles are told where there are samples enough."
    )


def remarks(result: Result) -> list[str]:
    """Return remarks on single runs: why they are void, and notes."""
    found = []
    for point in (result.lone, result.closed, *result.points):
        found += [f"{point.asked.title}: void: {why}" for why in point.void]
        found += [f"{point.asked.title}: {note}" for note in point.notes]
        odd = {words: count for words, count in point.statuses.items() if words != "status 200"}
        if odd and not point.void:
            total = sum(point.statuses.values())
            ends = ", ".join(f"{count} of {total} {words}" for words, count in odd.items())
            found.append(f"{point.asked.title}: {ends}")
    return found


def table(heading: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    rule = "|---" * len(heading) + "|"
    return [_line(heading), rule, *(_line(row) for row in body)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
