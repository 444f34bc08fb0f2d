"""Start times of processes: with its process id, which the kernel reuses, one names a process."""

import os
from typing import NamedTuple

_PARENT_FIELD = 4
_START_TIME_FIELD = 22


class Running(NamedTuple):
    """A process that has not ended."""

    parent: int
    started: int
    """Start time in clock ticks since boot."""


def running(pid: int) -> Running | None:
    """Return a process's entry in /proc; None if no such process runs."""
    try:
        # Tests look at every process again and again, and a Path would cost most of that.
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold blanks and parentheses itself.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Running(int(fields[_PARENT_FIELD - 3]), int(fields[_START_TIME_FIELD - 3]))


def all_running() -> dict[int, Running]:
    """Return every process that has not ended, by its process id."""
    processes = {int(name): running(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: process for pid, process in processes.items() if process is not None}


def start_time_of(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if no such process runs."""
    process = running(pid)
    return None if process is None else process.started
