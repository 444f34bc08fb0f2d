"""Which engine of this host a command or a client means."""

from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment, names


def only(pid: int | None) -> str:
    """The segment's name of the one running engine of this user, or of that supervisor.

    Raises:
        StartupError: no such engine runs, or several do.
    """
    found = {name: segment for name in names(pid) if (segment := _living(name)) is not None}
    try:
        if not found:
            raise not_running(pid)
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


def not_running(pid: int | None) -> StartupError:
    """That there is no engine, or none of that supervisor."""
    whose = "" if pid is None else f" whose supervisor has process id {pid}"
    return StartupError(f"no engine of ringbatch{whose} is running")


def _living(name: str) -> Segment | None:
    try:
        segment = Segment.attach(name)
    except StartupError:  # another user's, or on its way in or out
        return None
    if segment.owner.alive():
        return segment
    segment.detach()
    return None
