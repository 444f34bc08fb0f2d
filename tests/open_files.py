"""Open files of a process, which may open and close some during the look."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def open_files(pid: int) -> dict[int, str]:
    """The targets of its open descriptors, by their numbers; none where it has ended."""
    found = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            # It may close one between the list and the look.
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


@contextmanager
def none_left_open() -> Iterator[None]:
    """Fail if this process has a file open afterwards that it had not before.

    Files that were open before may be closed meanwhile: garbage of earlier tests may hold some.
    """
    before = open_files(os.getpid())
    yield
    left = open_files(os.getpid()).items() - before.items()
    assert not left, f"left open: {left}"
