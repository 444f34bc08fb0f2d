"""Tests frontend/codec/server_timing.py: the entries about parts, behind those of any answer."""

import re

import pytest

from ringbatch.frontend.codec.server_timing import PartIntervals

MS = 1_000_000


@pytest.mark.parametrize(
    ("came_ms", "found"),
    [
        ([], ""),
        ([15], ", first_part;dur=5.000"),
        (
            [12, 15],
            ', first_part;dur=2.000, part_gap;dur=3.000;desc="mean of 1"'
            ", longest_part_gap;dur=3.000",
        ),
        (
            [12, 12, 20, 22.5],
            ', first_part;dur=2.000, part_gap;dur=3.500;desc="mean of 3"'
            ", longest_part_gap;dur=8.000",
        ),
    ],
)
def test_entries_tell_of_the_first_part_and_the_gaps(came_ms: list[float], found: str) -> None:
    intervals = PartIntervals()
    for instant_ms in came_ms:
        intervals.note(round(instant_ms * MS))
    assert intervals.entries(10 * MS) == found
    # As W3C's Server Timing has them.
    entry = r', [a-z_]+;dur=\d+\.\d{3}(;desc="[^"]*")?'
    assert re.fullmatch(f"({entry})*", found)
