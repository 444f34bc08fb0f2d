"""The child processes of a process of the engine, which end with it.

Each process of the engine leads a process group, all of which can be ended at once. One that runs
other people's code, which may start processes and give them groups of their own, leads a session
too: whatever it starts is in that session, unless it leaves it on purpose.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOOKS: Final = 3
"""How often to look for those who left the group: who is found may have had children meanwhile."""
_SESSION_FIELD: Final = 6


def kill_session(leader: int) -> None:
    """SIGKILL for all processes of a process group, and of a session where its leader leads one.

    Args:
        leader: its process id; it must not have been waited for, or another may have that id.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_LOOKS):
        # Without a descriptor to spare, those who left the group stay.
        with suppress(OSError):
            others = [pid for pid in map(int, _numbers()) if pid != leader and _is_in(pid, leader)]
            for pid in others:
                _kill(pid, leader)
            if others:
                continue
        return


def _numbers() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdecimal()]


def _is_in(pid: int, leader: int) -> bool:
    """Whether a process is in that session, and has not ended."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        # The command's name stands in parentheses and may hold blanks and parentheses itself.
        fields = stat[stat.rindex(b")") + 2 :].split()
        return fields[0] not in (b"Z", b"X") and int(fields[_SESSION_FIELD - 3]) == leader
    return False


def _kill(pid: int, leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            # Another process may have got that id since it was found.
            if _is_in(pid, leader):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
