"""Which engine a program on the same host means, and a sign of that engine's end."""

import os

from ringbatch.shm.engines import not_running, only
from ringbatch.shm.segment import Segment


def attach(engine: str | int | None = None, segment: str | None = None) -> tuple[Segment, int]:
    """The segment of a running engine, and what `Segment.watch_life` gives.

    Args:
        engine: its name, or the process id of its supervisor.
        segment: its name in shared memory. Without both, the only engine of this user is meant.

    Raises:
        StartupError: no such engine runs, or several do, or it is another user's.
    """
    if segment is None:
        segment = only(engine)
    attached = Segment.attach(segment)
    try:
        life = attached.watch_life()
        # What ended before that was opened is told by no descriptor.
        if attached.alive:
            return attached, life
        os.close(life)
        raise not_running(engine)
    except BaseException:
        attached.detach()
        raise
