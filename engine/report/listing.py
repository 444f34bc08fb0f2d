"""Printing something of each engine that runs, for the commands that only look."""

import sys
from collections.abc import Callable

from ringbatch.shm.engines import running
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment


def show(pid: int | None, text: Callable[[Segment], str]) -> int:
    """Print a text of one engine, or of every engine of this user; the exit status.

    Args:
        pid: of the engine's supervisor; None for every engine.
        text: what to print of an attached segment.
    """
    try:
        with running(pid) as segments:
            for segment in segments:
                print(f"engine {segment.pid}")
                print(text(segment))
    except StartupError as error:
        print(f"ringbatch: {error}", file=sys.stderr)
        return 1
    return 0
