"""Who holds something, so that their death can be proved.

A process id alone is no identity: it is given out again. Together with the time the process
started it is one, for as long as the host runs.
"""

import os
from dataclasses import dataclass
from pathlib import Path

_START_TIME_FIELD = 22


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its id, and when it started in clock ticks since boot."""

    pid: int
    start_time: int

    @staticmethod
    def current() -> "Owner":
        """This process."""
        start_time = start_time_of(os.getpid())
        assert start_time is not None, "this process is not in /proc"
        return Owner(os.getpid(), start_time)

    def alive(self) -> bool:
        """Whether that very process still runs; a zombie does not."""
        return start_time_of(self.pid) == self.start_time


def start_time_of(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where none such runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold blanks and parentheses itself.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return int(fields[_START_TIME_FIELD - 3])
