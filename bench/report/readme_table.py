"""Write README's comparison between its markers, from the committed report."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from peers.servers import BENCH

from report.rounds import number
from report.text import BUSY, disturbed, machine_words

README: Final = BENCH.parent / "README.md"
REPORT_JSON: Final = BENCH / "report.json"
BEGIN: Final = "<!-- report:frameworks -->"
END: Final = "<!-- report:end frameworks -->"
Column = tuple[str, str, tuple[Any, ...], str, str]
"""Heading, scenario, key of its row after the peer, figure, unit."""
WORKLOAD: Final = "16 floats"
OWN_HEADS: Final = "16 floats, own heads"
COLUMNS: Final[tuple[Column, ...]] = (
    ("p50, 1 connection", "frameworks", (WORKLOAD, 1), "p50_ms", " ms"),
    ("requests/s, 1", "frameworks", (WORKLOAD, 1), "requests_per_s", ""),
    ("32", "frameworks", (WORKLOAD, 32), "requests_per_s", ""),
    ("32, own heads", "frameworks", (OWN_HEADS, 32), "requests_per_s", ""),
    ("128", "frameworks", (WORKLOAD, 128), "requests_per_s", ""),
    ("128, own heads", "frameworks", (OWN_HEADS, 128), "requests_per_s", ""),
    ("CPU µs a request, 32", "frameworks", (WORKLOAD, 32), "cpu_us", ""),
    ("784 floats, 32", "frameworks", ("784 floats", 32), "requests_per_s", ""),
    ("start to ready, s", "startup", (), "ready_s", ""),
    ("memory, MiB", "startup", (), "pss_mib", ""),
)

Report = Mapping[str, Any]


class NoMarkers(ValueError):
    """README has not exactly one place for the table."""


def with_table(readme: str, report: Report) -> str:
    """Return README's text with the report's table between its markers.

    It stays as it is if the report has no figures.

    Raises:
        NoMarkers: there is not one place for the table, with a beginning and after it an end.
    """
    parts = re.fullmatch(rf"(.*{BEGIN}\n)(.*?)({END}.*)", readme, re.DOTALL)
    if parts is None or readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise NoMarkers(f"README needs {BEGIN} and after it {END}, once each")
    if "tables" not in report["scenarios"].get("frameworks", {}):
        return readme
    text = "\n".join(comparison(report["scenarios"]))
    return f"{parts[1]}\n{text}\n\n{parts[3]}"


def comparison(scenarios: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of all frameworks, and whether others disturbed its runs."""
    main = scenarios["frameworks"]
    settings = main["settings"]
    rounds, seconds = int(settings["rounds"]), float(settings["seconds"])
    yield f"Medians of {rounds} interleaved rounds, {seconds:g} s each, on"
    yield f"{main['started_utc'][:10]}: {machine_words(main)}."
    if disturbed(main) > BUSY:
        yield f"**Others used up to {disturbed(main):.0%} of the machine meanwhile: provisional.**"
    yield ""
    known = [c for c in COLUMNS if any(figures(scenarios, c, peer) for peer in peers(main))]
    yield f"| | {' | '.join(heading for heading, *_ in known)} |"
    yield "|---" * (len(known) + 1) + "|"
    for peer in peers(main):
        cells = [cell(figures(scenarios, column, peer), column[4]) for column in known]
        yield f"| {peer} | {' | '.join(cells)} |"
    for peer, why in main["absent"].items():
        yield from ("", f"Without {peer}: {why.splitlines()[0]}")


def peers(scenario: Mapping[str, Any]) -> list[str]:
    """Return the peers with figures in a scenario, in the order of its rows."""
    rows = [
        dict(zip(table["by"], row, strict=False))
        for table in scenario["tables"]
        for row in table["rows"]
    ]
    return list(dict.fromkeys(row["peer"] for row in rows))


def figures(
    scenarios: Mapping[str, Any],
    column: Column,
    peer: str,
) -> Sequence[float] | None:
    """Return [median, smallest, largest, rounds] of one cell; None if it was not measured."""
    _, name, beside, figure, _ = column
    for table in scenarios.get(name, {}).get("tables", ()):
        if figure not in table["figures"]:
            continue
        place = len(table["by"]) + table["figures"].index(figure)
        for row in table["rows"]:
            known = dict(zip(table["by"], row, strict=False))
            if known.pop("peer") == peer and tuple(known.values()) == beside:
                found: Sequence[float] | None = row[place]
                return found
    return None


def cell(found: Sequence[float] | None, unit: str) -> str:
    """Return the median as text; a dash if it was not measured."""
    return "-" if found is None else f"{number(found[0])}{unit}"


def wanted() -> str:
    """Return README with the table of the committed report."""
    return with_table(README.read_text(), json.loads(REPORT_JSON.read_text()))


def write() -> None:
    """Update README's table."""
    README.write_text(wanted())
