"""Open files of a process, which may open and close some during the look."""

import os
from contextlib import suppress


def open_files(pid: int) -> dict[int, str]:
    """The targets of its open descriptors, by their numbers; none where it has ended."""
    found = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            # It may close one between the list and the look.
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found
