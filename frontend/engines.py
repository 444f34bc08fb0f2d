"""Which engine a program on the same host means, and a sign of that engine's end."""

import os

from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment, names


def attach(pid: int | None = None, segment: str | None = None) -> tuple[Segment, int]:
    """The segment of a running engine, and a descriptor that is readable once the engine ends.

    Args:
        pid: of the engine's supervisor.
        segment: its name in shared memory. Without both, the only engine of this user is meant.

    Raises:
        StartupError: no such engine runs, or several do, or it is another user's.
    """
    if segment is None:
        segment = _only(pid)
    attached = Segment.attach(segment)
    owner = attached.owner
    try:
        life = os.pidfd_open(owner.pid)
    except OSError:
        attached.detach()
        raise _not_running(pid) from None
    # The id may be another process's by now. From here on the descriptor is the process.
    if not owner.alive():
        os.close(life)
        attached.detach()
        raise _not_running(pid)
    return attached, life


def _only(pid: int | None) -> str:
    found = {name: segment for name in names(pid) if (segment := _living(name)) is not None}
    try:
        if not found:
            raise _not_running(pid)
        if len(found) > 1:
            shown = "; ".join(
                f"process {segment.owner.pid} serves {', '.join(m.name for m in segment.models)}"
                for segment in found.values()
            )
            raise StartupError(f"{len(found)} engines run, say which by pid: {shown}")
        return next(iter(found))
    finally:
        for segment in found.values():
            segment.detach()


def _living(name: str) -> Segment | None:
    try:
        segment = Segment.attach(name)
    except StartupError:  # another user's, or on its way in or out
        return None
    if segment.owner.alive():
        return segment
    segment.detach()
    return None


def _not_running(pid: int | None) -> StartupError:
    whose = "" if pid is None else f" whose supervisor has process id {pid}"
    return StartupError(f"no engine of ringbatch{whose} is running")
