"""Summaries of scenarios in the committed report, made from their result files. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from report.rounds import spread
from report.scenarios import Scenario, Shape

Record = Mapping[str, Any]
"""Result file, as `Report` writes it."""
Summary = dict[str, Any]
"""Summary of a scenario, as JSON has it."""

MEASURED, MISSED, FAILED, NOT_RUN = "measured", "missed", "failed", "not run"


@dataclass(frozen=True)
class Outcome:
    """End of a script.

    Attributes:
        status: its exit status.
        took_s: how long it took.
        busy_before: share of all cores that other processes used just before, 0 to 1.
        busy_after: the same just after.
        tail: the end of its output.
    """

    status: int
    took_s: float
    busy_before: float
    busy_after: float
    tail: str


def not_run(scenario: Scenario) -> Summary:
    """Return the summary of a scenario without a result."""
    return {"about": scenario.about, "outcome": NOT_RUN}


def summarize(scenario: Scenario, outcome: Outcome, record: Record | None) -> Summary:
    """Return the summary of a scenario.

    Without a record it failed, and the end of its log says why.
    """
    found: Summary = {"about": scenario.about, **asdict(outcome)}
    tail = found.pop("tail")
    if record is None:
        return found | {"outcome": FAILED, "why": why(tail)}
    limits = record["limits"]
    return found | {
        "outcome": MISSED if any(not limit["met"] for limit in limits) else MEASURED,
        "started_utc": record["started_utc"],
        "settings": record["settings"],
        "machine": {k: v for k, v in record["machine"].items() if k != "load_average_before"},
        "versions": own_versions(record["versions"]),
        "commit": record["git"]["commit"],
        "dirty": record["git"]["dirty"],
        "notes": record.get("notes", {}),
        "pins": record.get("pins", {}),
        "absent": record.get("absent", {}),
        "limits": limits,
        "tables": [table(shape, record["runs"]) for shape in scenario.shapes],
    }


def why(tail: str) -> str:
    """Return the line of a log that names an error: the last one that is no note of it."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.partition(":")[0] or ": " in line]
    return (errors or lines or ["it printed nothing"])[-1][:300]


def own_versions(versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of the interpreter, of ringbatch and of wrk."""
    return {key: versions[key] for key in ("python", "compiled", "wrk")}


def table(shape: Shape, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of one table: of each, median, smallest, largest and the number of rounds."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        for one in parts(shape, run):
            flat = flattened(one)
            if all(name in flat for name in shape.by):
                groups.setdefault(tuple(flat[name] for name in shape.by), []).append(flat)
    present = [
        name for name in shape.figures if any(name in f for found in groups.values() for f in found)
    ]
    return {
        "by": list(shape.by),
        "figures": present,
        "rows": [
            [*key, *(figure(name, found) for name in present)] for key, found in groups.items()
        ],
    }


def figure(name: str, found: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Return [median, smallest, largest, rounds] of a field; None if no run has it."""
    values = [one[name] for one in found if one.get(name) is not None]
    if not values:
        return None
    three = spread(values)
    return [*(float(f"{v:.5g}") for v in (three.median, three.low, three.high)), len(values)]


def parts(shape: Shape, run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the runs in a run: one, or one for each name under `split`."""
    if shape.split is None:
        yield run
        return
    for name, found in run[shape.split].items():
        yield {shape.split: name} | {k: v for k, v in run.items() if k != shape.split} | found


def flattened(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return every field under its own name, without those of the objects around it."""
    found = {key: value for key, value in run.items() if not isinstance(value, dict)}
    for value in run.values():
        if isinstance(value, dict):
            found = flattened(value) | found
    return found
