"""Write README's comparisons between their markers, from the committed report.

python bench/readme_tables.py            writes README.md
python bench/readme_tables.py --check    says whether it is what the report gives
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from peers import BENCH
from report_text import BUSY, disturbed, machine_words
from rounds import number

README: Final = BENCH.parent / "README.md"
REPORT_JSON: Final = BENCH / "report.json"
BEGIN: Final = "<!-- report:{} -->"
END: Final = "<!-- report:end {} -->"
Column = tuple[str, str, tuple[Any, ...], str, str]
"""Heading, scenario, key of its row after the peer, figure, unit."""
SPEED: Final[tuple[Column, ...]] = (
    ("p50, 1 connection", "speed", (1, "same"), "p50_ms", " ms"),
    ("requests/s, 1", "speed", (1, "same"), "requests_per_s", ""),
    ("32", "speed", (32, "same"), "requests_per_s", ""),
    ("32, own heads", "speed", (32, "own"), "requests_per_s", ""),
    ("128", "speed", (128, "same"), "requests_per_s", ""),
    ("128, own heads", "speed", (128, "own"), "requests_per_s", ""),
)
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

TREES: Final = (
    *(("ringbatch, 1", "ringbatch", 1), ("FastAPI, 1", "fastapi", 1)),
    *(("ringbatch, 32", "ringbatch", 32), ("FastAPI, 32", "fastapi", 32)),
    *(("mosec, 32", "mosec", 32), ("LitServe, 32", "litserve", 32)),
    ("MLServer, 32", "mlserver", 32),
    *(("ringbatch, 128", "ringbatch", 128), ("FastAPI, 128", "fastapi", 128)),
    *(("mosec, 128", "mosec", 128), ("LitServe, 128", "litserve", 128)),
    ("MLServer, 128", "mlserver", 128),
)
"""Heading, peer, connections."""
KINDS: Final = {
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "histgb": "scikit-learn's HistGradientBoosting",
    "forest": "scikit-learn's random forest",
}

Report = Mapping[str, Any]


class NoMarkers(ValueError):
    """README has not exactly one place for a table."""


def with_tables(readme: str, report: Report) -> str:
    """README's text with what lies between its markers made from the report.

    What the report has no figures of stays as it is.

    Raises:
        NoMarkers: there is not one place for a table, with a beginning and after it an end.
    """
    for name, lines in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        parts = re.fullmatch(
            rf"(.*{re.escape(begin)}\n)(.*?)({re.escape(end)}.*)", readme, re.DOTALL
        )
        if parts is None or readme.count(begin) != 1 or readme.count(end) != 1:
            raise NoMarkers(f"README needs {begin} and after it {end}, once each")
        if "tables" in report["scenarios"].get(name, {}):
            text = "\n".join(lines(report["scenarios"]))
            readme = f"{parts[1]}\n{text}\n\n{parts[3]}"
    return readme


def head(found: Mapping[str, Any]) -> Iterator[str]:
    """How a scenario was measured, and whether others disturbed it."""
    settings = found["settings"]
    rounds, seconds = int(settings["rounds"]), float(settings["seconds"])
    yield f"Medians of {rounds} interleaved rounds, {seconds:g} s each, on"
    yield f"{found['started_utc'][:10]}: {machine_words(found)}."
    if disturbed(found) > BUSY:
        yield f"**Others used up to {disturbed(found):.0%} of the machine meanwhile: provisional.**"
    yield ""


def variants(scenarios: Mapping[str, Any]) -> Iterator[str]:
    """The table of speed.py."""
    found = scenarios["speed"]
    notes = {peer: f"{peer}: {note}" for peer, note in found["notes"].items()}
    yield from head(found)
    yield from by_peer(scenarios, found, SPEED, notes)


def comparison(scenarios: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of all frameworks."""
    main = scenarios["frameworks"]
    yield from head(main)
    yield from by_peer(scenarios, main, COLUMNS, {})
    for peer, why in main["absent"].items():
        yield from ("", f"Without {peer}: {why.splitlines()[0]}")


def by_peer(
    scenarios: Mapping[str, Any],
    main: Mapping[str, Any],
    columns: Sequence[Column],
    notes: Mapping[str, str],
) -> Iterator[str]:
    """Yield a line for each peer of a scenario, without columns that have no figure."""
    known = [c for c in columns if any(figures(scenarios, c, peer) for peer in peers(main))]
    yield f"| | {' | '.join(heading for heading, *_ in known)} |"
    yield "|---" * (len(known) + 1) + "|"
    for peer in peers(main):
        cells = [cell(figures(scenarios, column, peer), column[4]) for column in known]
        yield f"| {notes.get(peer, peer)} | {' | '.join(cells)} |"


def trees(scenarios: Mapping[str, Any]) -> Iterator[str]:
    """The table of trees.py: a line for each kind, without columns that have no figure."""

    def found(kind: str, peer: str, count: int) -> Sequence[float] | None:
        return figures(scenarios, ("", "trees", (kind, count), "requests_per_s", ""), peer)

    yield from head(scenarios["trees"])
    rows = {
        name: [found(kind, peer, count) for _, peer, count in TREES] for kind, name in KINDS.items()
    }
    known = [place for place, _ in enumerate(TREES) if any(row[place] for row in rows.values())]
    yield f"| | {' | '.join(TREES[place][0] for place in known)} |"
    yield "|---" * (len(known) + 1) + "|"
    for name, row in rows.items():
        if any(row):
            yield f"| {name} | {' | '.join(cell(row[place], '') for place in known)} |"


TABLES: Final = {"speed": variants, "frameworks": comparison, "trees": trees}
"""What makes each table, by its scenario."""


def peers(scenario: Mapping[str, Any]) -> list[str]:
    """Those of which a scenario has figures, in the order of its rows."""
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
    """[median, smallest, largest, rounds] of one cell; None where it was not measured."""
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
    """The median; a dash where nothing was measured."""
    return "-" if found is None else f"{number(found[0])}{unit}"


def wanted() -> str:
    """README as the committed report has it."""
    return with_tables(README.read_text(), json.loads(REPORT_JSON.read_text()))


def write() -> None:
    """Bring README up to date."""
    README.write_text(wanted())


def main() -> int:
    """Write, or check; the exit status of a check is 1 where README and report differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args().check:
        same = README.read_text() == wanted()
        print("README is what the report gives" if same else "README and report differ")
        return 0 if same else 1
    write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
