"""Ends a process of the engine together with all its descendants.

Each process of the engine leads a process group, which can be killed at once. A process that runs
user code also leads a session, because that code may start processes and give them groups of
their own. Descendants stay in the session unless they leave it on purpose.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOOKS: Final = 3
"""Looks for processes that left the group, as each may have had new children by then."""
_SESSION_FIELD: Final = 6


def kill_session(leader: int) -> None:
    """Send SIGKILL to all processes of a process group, and of a session if its leader leads one.

    Args:
        leader: its process id; it must not have been reaped, or another process may have that id.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_LOOKS):
        # Without a free descriptor, processes that left the group live on.
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
    """Return whether a process is in that session, and has not ended."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        # The command's name is in parentheses, and may itself hold blanks and parentheses.
        fields = stat[stat.rindex(b")") + 2 :].split()
        return fields[0] not in (b"Z", b"X") and int(fields[_SESSION_FIELD - 3]) == leader
    return False


def _kill(pid: int, leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            # Another process may have got that id in between.
            if _is_in(pid, leader):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
