"""The committed report as text: its JSON, and the Markdown made from that (pure)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from report.rounds import number
from report.scenarios import NAMES
from report.summary import FAILED, NOT_RUN

BUSY: Final = 0.05
"""Share of all cores above which other processes, just before or after, disturb the figures."""
INDENT: Final = "  "

Report = Mapping[str, Any]
"""Contents of report.json."""


def as_json(value: Any, depth: int = 0) -> str:
    """Return JSON with an object's members on lines of their own, and each flat row on one."""
    inside, outside = "\n" + INDENT * (depth + 1), "\n" + INDENT * depth
    if isinstance(value, Mapping) and any(isinstance(v, Mapping | list) for v in value.values()):
        members = [f"{json.dumps(k)}: {as_json(v, depth + 1)}" for k, v in value.items()]
        return "{" + inside + f",{inside}".join(members) + outside + "}"
    if isinstance(value, list) and any(isinstance(v, Mapping | list) for v in value):
        # The rows of a table hold lists of numbers, which stay on their line.
        cells = [
            json.dumps(v, ensure_ascii=False) if isinstance(v, list) else as_json(v, depth + 1)
            for v in value
        ]
        if not any(isinstance(v, Mapping) or _nested(v) for v in value):
            return json.dumps(value, ensure_ascii=False)
        return "[" + inside + f",{inside}".join(cells) + outside + "]"
    return json.dumps(value, ensure_ascii=False)


def _nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(v, list) for v in value)


def markdown(report: Report) -> str:
    """Return the whole report as Markdown."""
    scenarios = report["scenarios"]
    lines = [
        "# What was measured",
        "",
        f"Written by `{report['command']}` from `report.json`; the project's README takes its",
        "table from the same file, and the README here says between which two points each script",
        "measures. A figure is the median of its rounds, with the smallest and the largest. Server",
        "and load generator share the cores.",
        *_machines(scenarios),
        *_outcomes(scenarios),
        *_peers(report["peers"]),
    ]
    for name, found in scenarios.items():
        if "tables" in found:
            lines += _scenario(name, found)
    return "\n".join(lines) + "\n"


def machines(scenarios: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return each machine with its software, in words, and the scenarios that ran there."""
    found: dict[str, list[str]] = {}
    for name, one in scenarios.items():
        if "machine" in one:
            found.setdefault(machine_words(one), []).append(name)
    return found


def machine_words(found: Mapping[str, Any]) -> str:
    """Return a scenario's machine and software in one line."""
    machine, versions = found["machine"], found["versions"]
    compiled = "compiled" if versions["compiled"] else "not compiled"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib'] / 1024:.0f} GiB, "
        f"Linux {machine['kernel']}, Python {versions['python']}, wrk {versions['wrk']}, "
        f"ringbatch {compiled}"
    )


def disturbed(found: Mapping[str, Any]) -> float:
    """Return the larger share of cores that others used just before or after the scenario."""
    return float(max(found["busy_before"], found["busy_after"]))


def _machines(scenarios: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Machine", "")
    for words, names in machines(scenarios).items():
        yield f"- {words}: {', '.join(names)}."
    busy = [n for n, one in scenarios.items() if "machine" in one and disturbed(one) > BUSY]
    if busy:
        yield from (
            "",
            f"**Others used the machine meanwhile, more than {BUSY:.0%} of it: {', '.join(busy)}.",
            "These figures are provisional.**",
        )


def _outcomes(scenarios: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Outcomes", "")
    yield from _table(
        ["scenario", "outcome", "limits met", "minutes", "used by others", "UTC", "commit"],
        [[name, *_outcome(found)] for name, found in scenarios.items()],
    )
    for name, found in scenarios.items():
        if found["outcome"] == FAILED:
            yield from ("", f"`{name}` failed: {_inline(found['why'])}")
        for peer, why in found.get("absent", {}).items():
            yield from ("", f"`{name}` is without {peer}: {_inline(why)}")


def _outcome(found: Mapping[str, Any]) -> list[str]:
    if found["outcome"] == NOT_RUN:
        return [NOT_RUN, "", "", "", "", ""]
    took = f"{found['took_s'] / 60:.1f}"
    busy = f"{found['busy_before']:.0%}, {found['busy_after']:.0%}"
    if found["outcome"] == FAILED:
        return [FAILED, "", took, busy, "", ""]
    met = [limit["met"] for limit in found["limits"]]
    commit = (found["commit"] or "none")[:9] + (" and changes" if found["dirty"] else "")
    return [
        found["outcome"],
        f"{sum(met)} of {len(met)}",
        took,
        busy,
        found["started_utc"][:16].replace("T", " "),
        commit,
    ]


def _peers(peers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield from ("", "## Peers", "")
    for name, pins in peers.items():
        yield f"- {name}: {', '.join(pins)}"


def _scenario(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"## {name}", "", found["about"])
    for table in found["tables"]:
        if table["rows"]:
            header = [*table["by"], *(NAMES.get(key, key) for key in table["figures"])]
            split = len(table["by"])
            rows = [
                [*map(str, row[:split]), *(cell(figure) for figure in row[split:])]
                for row in table["rows"]
            ]
            yield ""
            yield from _table(header, rows)
    missed = [limit for limit in found["limits"] if not limit["met"]]
    for limit in missed:
        bounds = [
            f"{word} {number(limit[key])}"
            for word, key in (("at least", "at_least"), ("at most", "at_most"))
            if limit[key] is not None
        ]
        words = f"{limit['name']}: {number(limit['value'])} {limit['unit']}".strip()
        yield from ("", f"Missed: {words}, {' and '.join(bounds)} is wanted.")
    for peer, note in found["notes"].items():
        yield from ("", f"{peer}: {note}.")


def cell(figure: Sequence[float] | None) -> str:
    """Return median, smallest and largest of a figure as text; the median alone of one round."""
    if figure is None:
        return "-"
    median, low, high, count = figure
    return number(median) + (f" ({number(low)}..{number(high)})" if count > 1 else "")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(map(_inline, row))} |"


def _inline(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
