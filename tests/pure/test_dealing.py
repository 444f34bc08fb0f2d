"""Tests are dealt out to processes: all of them, files with servers whole."""

from collections import Counter

from dealing import dealt
from hypothesis import given
from hypothesis import strategies as st

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


def test_each_process_begins_with_what_is_slow() -> None:
    items = [(path, n) for path in PATHS for n in range(10)]
    order = dealt(items, 2, lambda item: item[0])
    halves = order[:30], order[30:]
    for half in halves:
        assert ["pure" in path for path, _ in half] == [False] * 20 + [True] * 10
    assert dealt(items, 1, lambda item: item[0]) == items


def test_one_process_reads_the_sources() -> None:
    paths = [f"tests/{path}.py" for path in ("serve/test_a", "test_tidy", "serve/test_b", "test_a")]
    items = [(path, n) for path in [*paths, "tests/pure/test_a.py"] for n in range(3)]
    order = dealt(items, 3, lambda item: item[0])
    start = order.index(("tests/test_tidy.py", 0))
    assert order[start : start + 6] == [item for item in items if item[0] in (paths[1], paths[3])]
