"""Standard output of commands that takes no more: its reader has left, or its disk is full.

The reader leaves in ``ringbatch status | head``. A disk may be full in ``ringbatch units >FILE``.
"""

import os
import select
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Final

READER_LEFT: Final = 141
"""Exit status that shells give a program that SIGPIPE has ended."""
UNWRITTEN: Final = 1
"""Exit status of a command whose output is not all written."""


def until_reader_leaves(command: Callable[[], int]) -> int:
    """Run a command, and end without a word if nobody reads what it prints any more.

    If its output cannot be written for another reason, it ends with a message. Characters that the
    output's encoding lacks become escapes.

    Returns:
        Its exit status, `READER_LEFT` or `UNWRITTEN`.
    """
    if sys.__stdout__ is None:  # Closed before the start: nobody reads, and nothing is printed.
        return command()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _has_left():
            raise
        _drop_unwritten()
        return READER_LEFT
    except OSError as error:
        if not _fails():
            raise
        _drop_unwritten()
        print(f"ringbatch: standard output: {error.strerror}", file=sys.stderr)
        return UNWRITTEN


def _has_left() -> bool:
    """Return whether standard output broke, and no other pipe."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in output.poll(0))


def _fails() -> bool:
    """Return whether standard output cannot be written."""
    try:
        # Without a buffer (PYTHONUNBUFFERED) there is nothing left to flush.
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _drop_unwritten() -> None:
    """Drop what is left; else it would be written once more, and fail, as the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
