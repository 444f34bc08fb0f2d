"""Which engine a program on the same host means, and a sign of that engine's end."""

import os

from ringbatch.shm.engines import not_running, only
from ringbatch.shm.segment import Segment


def attach(pid: int | None = None, segment: str | None = None) -> tuple[Segment, int]:
    """The segment of a running engine, and a descriptor that is readable once the engine ends.

    Args:
        pid: of the engine's supervisor.
        segment: its name in shared memory. Without both, the only engine of this user is meant.

    Raises:
        StartupError: no such engine runs, or several do, or it is another user's.
    """
    if segment is None:
        segment = only(pid)
    attached = Segment.attach(segment)
    owner = attached.owner
    try:
        life = os.pidfd_open(owner.pid)
    except OSError:
        attached.detach()
        raise not_running(pid) from None
    # The id may be another process's by now. From here on the descriptor is the process.
    if not owner.alive():
        os.close(life)
        attached.detach()
        raise not_running(pid)
    return attached, life
