"""Figures of a control address, for tests that ask for them again and again.

prometheus_client takes five times as long to read a page; `tests/pure/test_figures.py`
has both read the same.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """Sample of a metrics page: one of its lines."""

    name: str
    labels: dict[str, str]
    value: float


def figures(page: str) -> Iterator[Sample]:
    """The samples of a page in the text format, in its order."""
    for found in _SAMPLE.finditer(page):
        labels = {name: _ESCAPED.sub(_meant, text) for name, text in _LABEL.findall(found[2] or "")}
        yield Sample(found[1], labels, float(found[3]))


def _meant(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]
