"""``ringbatch reload``: have a running engine serve what its configuration says now."""

import sys

from ringbatch.engine.control import ask
from ringbatch.shm.control import Order
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment, names


def main(pid: int | None, model: str | None) -> int:
    """Wait until it is done, and print what was; the exit status is 1 where anything failed.

    Args:
        pid: of the engine's supervisor; None for the only engine of this user.
        model: to be loaded again; None for all that changed.

    Raises:
        StartupError: no such engine runs, or several do.
    """
    report = ask(_segment_name(pid), Order("reload", model))
    done = report.end == "done"
    for line in report.lines:
        print(f"ringbatch: {line}", file=sys.stdout if done else sys.stderr)
    return 0 if done else 1


def _segment_name(pid: int | None) -> str:
    found = [name for name in names(pid) if _lives(name)]
    if not found:
        whose = "" if pid is None else f" whose supervisor has process id {pid}"
        raise StartupError(f"no engine{whose} is running")
    if len(found) > 1:
        pids = ", ".join(name.split(".")[1] for name in found)
        raise StartupError(f"{len(found)} engines run, say which with --pid: {pids}")
    return found[0]


def _lives(name: str) -> bool:
    try:
        segment = Segment.attach(name)
    except StartupError:  # another user's, or on its way in or out
        return False
    alive = segment.owner.alive()
    segment.detach()
    return alive
