"""Processes that collect tests share the work, and have the same tests in the same order then."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from walking import as_named, from_its_place

FILES = [Path(f"/clone/{place}/test_{name}.py") for place in ("b", "t/p", "t/s") for name in "acb"]
NAMED = [(file, number) for file in sorted(FILES) for number in (2, 1)]
"""Tests by their file; what stands behind in a file stays behind."""


@given(st.integers(0, 60), st.integers(1, 5))
def test_each_reads_all_and_together_they_have_read_all_when_each_has_read_its_share(
    count: int, processes: int
) -> None:
    files = list(range(count))
    orders = [from_its_place(files, process, processes) for process in range(processes)]
    assert all(sorted(order) == files for order in orders)
    share = -(-count // processes)
    assert {file for order in orders for file in order[:share]} == set(files)


def test_one_that_replaces_another_begins_where_one_did() -> None:
    assert from_its_place("abcdef", 4, 3) == from_its_place("abcdef", 1, 3) == [*"cdefab"]


@given(st.permutations(FILES))
def test_in_any_order_of_reading_tests_have_the_order_of_names(files: list[Path]) -> None:
    read = [test for file in files for test in NAMED if test[0] == file]
    assert as_named(read, lambda test: test[0], [Path("/clone")]) == NAMED


def test_folders_stay_in_the_order_that_was_asked_for() -> None:
    def named(*folders: str) -> list[str]:
        found = as_named(NAMED, lambda test: test[0], [Path("/clone", name) for name in folders])
        return [str(file.relative_to("/clone").parent) for file, number in found[::6]]

    assert named("t/s", "b", "t/p") == ["t/s", "b", "t/p"]
    assert named("t", "b") == ["t/p", "t/s", "b"]
    assert named("t/s", "b", "t") == ["b", "t/p", "t/s"], "t has all that t/s has"
