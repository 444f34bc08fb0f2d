"""When a process started: together with its process id, which is given out again, it names one."""

from pathlib import Path

_START_TIME_FIELD = 22


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
