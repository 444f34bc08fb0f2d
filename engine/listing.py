"""Printing something of each engine that runs, for the commands that only look."""

import sys
from collections.abc import Callable

from ringbatch.shm.engines import not_running
from ringbatch.shm.segment import Segment, names


def show(pid: int | None, text: Callable[[Segment], str]) -> int:
    """Print a text of one engine, or of every engine of this user; the exit status.

    Args:
        pid: of the engine's supervisor; None for every engine.
        text: what to print of an attached segment.
    """
    found = list(names(pid))
    if not found:
        print(f"ringbatch: {not_running(pid)}", file=sys.stderr)
        return 1
    for name in found:
        print(f"engine {name.split('.')[1]}")
        print(text(Segment.attach(name)))
    return 0
