"""Order in which tests are handed to the processes of a run.

pytest-xdist cuts what was collected into as many equal runs as there are processes, and then lets
who is done take the latter half of what another has left (`--dist worksteal`). In the order of the
folders one process would get nearly all tests of whole servers, and each time that some are taken
from it, the server of their file is started once more. So files with servers and the like are dealt
out whole, one after the other, at the beginning of each process's run, and quick tests fill it up.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

TOGETHER: Final = (
    ("tests/test_",),
    (
        "tests/local/test_runtime_dataframes.py",
        "tests/local/test_runtime_sklearn.py",
        "tests/local/test_runtimes.py",
        "tests/serve/test_examples.py",
        "tests/serve/test_runtimes.py",
    ),
)
"""Beginnings of the paths of files that first take a second or more: they read all sources, or
import scikit-learn. One process has all of them. They come early, as others take what is left at
the end, and would take those seconds again."""
LONGEST: Final = ("tests/container/", "tests/systemd/")
"""Folders of test files that take minutes. They come first, so that no process ends with one while
the others have nothing left."""
SLOW: Final = (
    *LONGEST,
    "tests/serve/",
    "tests/process/",
    "tests/simulation/",
    "tests/fuzz/",
    "tests/documents/",
    "bench/",
)
"""Folders of test files that start processes, or take as long."""


def dealt(items: Sequence[T], processes: int, file_of: Callable[[T], str]) -> list[T]:
    """Return tests in the order in which so many processes are to run them. Pure.

    Args:
        items: as they were collected, the tests of a file one after the other.
        processes: at least one.
        file_of: the path of a test's file.
    """
    files: dict[str, list[T]] = {}
    for item in items:
        files.setdefault(_unit_of(file_of(item)), []).append(item)
    whole = (*SLOW, *(path for paths in TOGETHER for path in paths))
    in_turn = sorted(files, key=_turn)
    slow = [files[path] for path in in_turn if path.startswith(whole)]
    quick = [item for path, own in files.items() if not path.startswith(whole) for item in own]
    order: list[T] = []
    for number in range(processes):
        own = [item for file in slow[number::processes] for item in file]
        left = processes - number
        size = max((len(items) - len(order)) // left - len(own), 0)
        order += own + (quick[:size] if left > 1 else quick)
        del quick[:size]
    return order


def _turn(path: str) -> int:
    """Return the turn of a file or unit: the longest first, then what belongs together."""
    if path.startswith(LONGEST):
        return 0
    return 1 if any(path.startswith(paths) for paths in TOGETHER) else 2


def _unit_of(path: str) -> str:
    """Return the name of what is dealt out whole: a file, or some that belong together."""
    return next((paths[0] for paths in TOGETHER if path.startswith(paths)), path)
