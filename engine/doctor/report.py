"""Findings as people and programs read them. Pure."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from ringbatch.engine.doctor.facts import Facts
from ringbatch.engine.doctor.findings import Finding, Level, counted

_WIDTH: Final = 100
_LABEL: Final = max(map(len, Level))
_NOT_WELL: Final = (Level.ERROR, Level.WARNING, Level.NOTE)


def text(findings: Sequence[Finding]) -> str:
    """Return a line for each good finding, a paragraph for each other, and a count."""
    column = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        head = f"{finding.level:<{_LABEL}}  {finding.check:<{column}}  "
        lines += _wrapped(head, finding.found)
        if finding.level is not Level.OK:
            indent = " " * len(head)
            lines += _wrapped(f"{indent}why: ", finding.why)
            lines += _wrapped(f"{indent}do:  ", finding.do) if finding.do else []
    counts = Counter(finding.level for finding in findings)
    not_well = ", ".join(counted(counts[level], level) for level in _NOT_WELL)
    lines += ["", f"{not_well}; {counts[Level.OK]} ok"]
    return "\n".join(lines)


def _wrapped(head: str, words: str) -> list[str]:
    return textwrap.wrap(
        words,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_json(findings: Iterable[Finding], facts: Facts) -> str:
    """Return the findings and the versions as a JSON object.

    ``{"findings": [{"check", "level", "found", "why", "do"}], "versions": {name: version}}``
    """
    return json.dumps(
        {"findings": [asdict(finding) for finding in findings], "versions": versions(facts)},
        indent=1,
    )


def versions(facts: Facts) -> dict[str, str | None]:
    """Return the versions of ringbatch and of its environment; None for a missing package."""
    found: dict[str, str | None] = {}
    if facts.software is not None:
        compiled = " (compiled)" * facts.software.compiled
        found["ringbatch"] = f"{facts.software.ringbatch}{compiled}" or None
        found["python"] = ".".join(map(str, facts.software.python))
        found |= {package.name: package.version for package in facts.software.packages}
    if facts.kernel is not None:
        found["kernel"] = facts.kernel.system
    return found
