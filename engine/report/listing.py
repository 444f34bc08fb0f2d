"""Printing of each running engine, for commands that only read."""

import sys
from collections.abc import Callable

from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.engines import running
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment


def show(engine: str | int | None, text: Callable[[Segment], str]) -> int:
    """Print a text of one engine, or of every engine of this user; the exit status.

    Args:
        engine: its name, or the process id of its supervisor; None for every engine. While one
            takes over from another, both have the name, and are shown.
        text: what to print of an attached segment.
    """
    try:
        with running(engine) as segments:
            for segment in segments:
                print(_heading(segment))
                print(text(segment))
    except StartupError as error:
        print(f"ringbatch: {error}", file=sys.stderr)
        return 1
    return 0


def _heading(segment: Segment) -> str:
    heading = f"engine {segment.engine}, process {segment.pid}"
    if port := segment.words[HeaderWords.PORT]:
        heading += f", port {port}"
    if segment.stopping or segment.draining:
        return f"{heading}, stopping"
    return heading if segment.ready_ns else f"{heading}, starting"
