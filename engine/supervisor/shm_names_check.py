"""Check that the engine's names in /dev/shm still exist.

Clients, commands and restarted processes attach by these names. Attached processes go on without
them. So after a removal the engine serves only until a process dies, and cannot recover: only
another engine has new names.
"""

from collections.abc import Callable, Sequence
from typing import Final

LOOK_EVERY_NS: Final = 2_000_000_000


class NamesLost(Exception):
    """Names of the engine are gone, or name another file; the text says how to prevent it."""


def words(lost: Sequence[str]) -> str:
    """Return a message about lost names, with a remedy. Pure.

    Args:
        lost: the paths, at least one.
    """
    paths = lost[0] if len(lost) == 1 else f"{lost[0]} and {len(lost) - 1} more"
    return (
        f"somebody removed what this engine needs in /dev/shm: {paths}. Clients and new processes "
        "cannot reach it any more, so it answers what it has and ends; start it again. "
        "systemd-logind removes what a user has there when that user logs out: RemoveIPC=no in "
        "/etc/systemd/logind.conf prevents that, and so does a system user, as the units of "
        "ringbatch have. Whatever else cleans /dev/shm must leave ringbatch.* and "
        "sem.ringbatch.* alone"
    )


class ShmNamesCheck:
    """Regular check of the names.

    Attributes:
        next_ns: when to look next.

    Args:
        lost: returns the paths that are lost.
        clock_ns: the monotonic clock.
    """

    def __init__(self, lost: Callable[[], Sequence[str]], clock_ns: Callable[[], int]) -> None:
        self.next_ns = clock_ns()
        self._lost = lost
        self._clock_ns = clock_ns

    def step(self) -> None:
        """Look, if it is time; called after every turn of the supervisor's loop.

        Raises:
            NamesLost: the engine is to end.
        """
        now_ns = self._clock_ns()
        if now_ns < self.next_ns:
            return
        self.next_ns = now_ns + LOOK_EVERY_NS
        if lost := self._lost():
            raise NamesLost(words(lost))
