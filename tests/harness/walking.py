"""Order in which the processes of a run read the files of the tests.

Each process of pytest-xdist collects all tests for itself. Where a file is read for the first
time, as in a fresh clone, its asserts are rewritten, which is most of the work; who comes later
finds that done, in `__pycache__`. Processes that read the same files in the same order come at the
same moment, and each would do all of it. So each begins in another place of every folder and goes
round it. In the end all have the tests in the same order, as pytest-xdist demands.
"""

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Self, TypeVar

import pytest

T = TypeVar("T")


def from_its_place(files: Sequence[T], process: int, processes: int) -> list[T]:
    """Return a folder's files in the order in which one of the processes reads them. Pure.

    Args:
        files: in the order of their names.
        process: its number, from 0; one that replaces another has a higher one.
        processes: at least one.
    """
    start = process % processes * len(files) // processes
    return [*files[start:], *files[:start]]


def as_named(items: Sequence[T], file_of: Callable[[T], Path], folders: Sequence[Path]) -> list[T]:
    """Tests as pytest has them by itself: folders as they were asked for, files by name. Pure.

    Args:
        items: the tests of a file one after the other.
        file_of: the path of a test's file.
        folders: those asked for. Every file lies in one of them; of two that hold it, the outer
            counts.
    """
    outer_first = sorted(folders)
    places = {}
    for file in {file_of(item) for item in items}:
        folder = next(folder for folder in outer_first if file.is_relative_to(folder))
        places[file] = folders.index(folder), file.parts
    return sorted(items, key=lambda item: places[file_of(item)])


class Walk:
    """A plugin of one process among several.

    An object, and not functions of conftest.py, because pytest asks those only about folders whose
    own files it has begun to read.
    """

    def __init__(self, process: int, processes: int, folders: Sequence[Path]) -> None:
        self._process = process
        self._processes = processes
        self._folders = folders

    @classmethod
    def of(cls, config: pytest.Config) -> Self | None:
        """Return this process's walk through the folders of a run.

        It is None if one process reads all, or if files and tests were named, in an order of their
        own.
        """
        processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
        folders = [Path(os.path.abspath(argument)) for argument in config.args]
        if processes < 2 or not all(folder.is_dir() for folder in folders):
            return None
        return cls(int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")), processes, folders)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory):
            folders = [node for node in report.result if isinstance(node, pytest.Directory)]
            files = [node for node in report.result if not isinstance(node, pytest.Directory)]
            report.result = folders + from_its_place(files, self._process, self._processes)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = as_named(items, lambda item: item.path, self._folders)
