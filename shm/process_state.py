"""State of a process in /proc: whether a signal or a debugger has stopped it."""

from pathlib import Path
from typing import Final

_STOPPED: Final = (b"T", b"t")


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped; False if it is gone or cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The command's name is in parentheses, and may itself hold blanks and parentheses.
    return stat[stat.rindex(b")") + 2 :].startswith(_STOPPED)


def stopped_words(pid: int) -> str:
    """Return the words for a process that is stopped, with the remedy."""
    return f"is stopped (kill -CONT {pid} lets it go on)"
