"""Broken-pipe handling for command output (``ringbatch status | head``)."""

import os
import select
import sys
from collections.abc import Callable
from typing import Final

READER_LEFT: Final = 141
"""Exit status that shells give a program that SIGPIPE has ended."""


def until_reader_leaves(command: Callable[[], int]) -> int:
    """Run a command, and end without a word where nobody reads what it prints any more.

    Returns:
        Its exit status, or `READER_LEFT`.
    """
    if sys.__stdout__ is None:  # Closed before the start: nobody reads, and nothing is printed.
        return command()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _has_left():
            raise
        # What is left would be written once more, and fail, as the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT


def _has_left() -> bool:
    """Return whether standard output broke, and no other pipe."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in output.poll(0))
