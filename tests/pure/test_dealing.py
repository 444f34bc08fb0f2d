"""Tests are dealt out to processes: all of them, files with servers whole."""

from collections import Counter

import pytest
from dealing import LONGEST, TOGETHER, dealt
from hypothesis import given
from hypothesis import strategies as st
from sources import ROOT

Item = tuple[str, int]

PATHS = [
    f"tests/{folder}/test_{name}.py" for folder in ("serve", "process", "pure") for name in "ab"
]


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.integers(1, 40))), st.integers(1, 5))
def test_each_test_is_run_once_and_files_with_servers_stay_whole(
    files: list[tuple[str, int]], processes: int
) -> None:
    items: list[Item] = [(path, n) for path, count in dict(files).items() for n in range(count)]
    order = dealt(items, processes, lambda item: item[0])
    assert Counter(order) == Counter(items)
    for path, count in dict(files).items():
        if "pure" not in path:
            start = order.index((path, 0))
            assert order[start : start + count] == [(path, n) for n in range(count)]


def test_each_process_begins_with_slow_tests() -> None:
    items = [(path, n) for path in PATHS for n in range(10)]
    order = dealt(items, 2, lambda item: item[0])
    halves = order[:30], order[30:]
    for half in halves:
        assert ["pure" in path for path, _ in half] == [False] * 20 + [True] * 10
    assert dealt(items, 1, lambda item: item[0]) == items


def test_the_longest_files_come_first_each_in_a_process_of_its_own() -> None:
    longest = [f"{folder}test_a.py" for folder in LONGEST]
    items = [(path, n) for path in (*PATHS, *longest) for n in range(3)]
    order = dealt(items, len(longest), lambda item: item[0])
    size = len(items) // len(longest)
    assert {order[process * size][0] for process in range(len(longest))} == set(longest)


def test_files_that_belong_together_are_run_by_one_process() -> None:
    for paths in TOGETHER:
        own = [f"{path}{number}.py" for path in paths for number in range(2)]
        files = [file for pair in zip(own, PATHS * 2, strict=False) for file in pair]
        items = [(path, n) for path in dict.fromkeys(files) for n in range(3)]
        order = dealt(items, 3, lambda item: item[0])
        start = order.index((own[0], 0))
        assert order[start : start + 3 * len(own)] == [item for item in items if item[0] in own]


def test_files_that_belong_together_come_before_others_with_servers() -> None:
    together = [f"{paths[0]}a.py" for paths in TOGETHER]
    items = [(path, n) for path in (*PATHS, *together) for n in range(3)]
    order = dealt(items, len(together), lambda item: item[0])
    size = len(items) // len(together)
    assert {order[process * size][0] for process in range(len(together))} == set(together)


@pytest.mark.parametrize("path", [path for paths in TOGETHER for path in paths])
def test_files_that_belong_together_are_there(path: str) -> None:
    assert [*ROOT.glob(f"{path}*")]
