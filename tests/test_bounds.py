"""The table of bounds by protocol in docs/design/bounds.md: each row names its tests, and the
constants whose values it states."""

import importlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from sources import ROOT
from test_architecture import PAGES, defined

COLUMNS: Final = ["bound", "fast lane", "Falcon", "HTTP/2", "gRPC", "constants and tests"]
REFERENCE: Final = re.compile(r"`((?:frontend|tests)/[\w/]+\.py):(\w+)`")
ROOMS: Final = ("frontend/http", "frontend/http2", "frontend/streams", "frontend/grpc")
BOUND: Final = re.compile(r"(MAX|MOST)(_\w+)?|\w+_TIMEOUT_S|\w+_ROOM")
"""Pattern of the names of constants that are bounds."""
OF_THE_PROTOCOL: Final = {
    "frontend/http2/frames.py:MAX_WINDOW",
    "frontend/http2/frames.py:MAX_FRAME_BYTES",
    "frontend/http2/header_decoder.py:MOST_TABLE_BYTES",
    "frontend/http2/header_decoder.py:MOST_RESIZES",
}
"""Bounds on frames and header blocks of RFC 7541 and 9113, which HTTP/1.1 does not have."""
PRICES: Final = {"frontend/http2/flood_budget.py:MOST_PACKED"}
"""Constants that the price in a row depends on."""


class Row(NamedTuple):
    """Row of the table of bounds."""

    name: str
    cells: list[str]
    constants: list[tuple[str, str]]
    tests: list[tuple[str, str]]


def rows() -> Iterator[Row]:
    """Yield the rows of the table of bounds."""
    head, _, *lines = _table()
    assert cells_of(head) == COLUMNS
    for line in lines:
        name, *cells, held = cells_of(line)
        found = REFERENCE.findall(held)
        constants = [one for one in found if one[0].startswith("frontend/")]
        yield Row(name, cells, constants, [one for one in found if one not in constants])


def _table() -> list[str]:
    part = PAGES["bounds"].partition("\n## ")[0]
    return [line for line in part.splitlines() if line.startswith("|")]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def spelled(value: float) -> set[str]:
    """Return the ways to write a number in the table."""
    found = {f"{value:,g}"}
    if isinstance(value, int):
        found.add(f"{value:,}")
        found |= {f"{value >> bits} {unit}" for bits, unit in ((10, "KiB"), (20, "MiB"))}
        names = {4: "four", 8: "eight"}
        found |= {names[value]} if value in names else set()
    return found


ROWS: Final = {row.name: row for row in rows()}


def test_there_is_one_table_of_many_bounds() -> None:
    assert len(ROWS) >= 18


@pytest.mark.parametrize("name", ROWS)
def test_a_bound_stands_for_every_protocol_and_names_its_tests(name: str) -> None:
    row = ROWS[name]
    assert len(row.cells) == 4
    assert all(row.cells), "a protocol without it says why"
    assert row.tests, "nobody tests it"
    for path, test in row.tests:
        assert test.startswith("test_")
        assert test in defined(ROOT / path), f"{path} has no {test}"


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_the_values_of_its_constants(name: str) -> None:
    row = ROWS[name]
    text = " ".join(row.cells)
    for path, constant in row.constants:
        module = importlib.import_module("ringbatch." + path.removesuffix(".py").replace("/", "."))
        value = getattr(module, constant)
        words = spelled(value)
        assert any(re.search(rf"(?<![\d,]){re.escape(word)}(?![\d,])", text) for word in words), (
            f"{constant} is {value}"
        )


def test_every_constant_that_bounds_a_client_is_in_a_row() -> None:
    named = {f"{path}:{constant}" for row in ROWS.values() for path, constant in row.constants}
    there = {
        f"{room}/{file.name}:{name}"
        for room in ROOMS
        for file in (ROOT / room).glob("*.py")
        for name in defined(file)
        if BOUND.fullmatch(name)
    }
    assert there - named == OF_THE_PROTOCOL | PRICES
