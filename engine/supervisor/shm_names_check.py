"""Check that the engine's names in /dev/shm still exist.

They are the way in for whoever attaches: clients, commands, and each process that takes the place
of a dead one. Who has attached goes on without them. So where somebody removes them, the engine
serves for as long as nobody dies, and is never whole again; only another one has names.
"""

from collections.abc import Callable, Sequence
from typing import Final

LOOK_EVERY_NS: Final = 2_000_000_000


class NamesLost(Exception):
    """Names of the engine are gone, or name something else; the text says what prevents it."""


def words(lost: Sequence[str]) -> str:
    """What has happened, and what to do about it. Pure.

    Args:
        lost: the paths, at least one.
    """
    what = lost[0] if len(lost) == 1 else f"{lost[0]} and {len(lost) - 1} more"
    return (
        f"somebody removed what this engine needs in /dev/shm: {what}. Clients and new processes "
        "cannot reach it any more, so it answers what it has and ends; start it again. "
        "systemd-logind removes what a user has there when that user logs out: RemoveIPC=no in "
        "/etc/systemd/logind.conf prevents that, and so does a system user, as the units of "
        "ringbatch have. Whatever else cleans /dev/shm must leave ringbatch.* and "
        "sem.ringbatch.* alone"
    )


class ShmNamesCheck:
    """The look, taken again and again.

    Attributes:
        next_ns: when to look next.

    Args:
        lost: tells which paths are lost.
        clock_ns: the monotonic clock.
    """

    def __init__(self, lost: Callable[[], Sequence[str]], clock_ns: Callable[[], int]) -> None:
        self.next_ns = clock_ns()
        self._lost = lost
        self._clock_ns = clock_ns

    def step(self) -> None:
        """Look, where it is time; after every turn of the supervisor's loop.

        Raises:
            NamesLost: the engine is to end.
        """
        now_ns = self._clock_ns()
        if now_ns < self.next_ns:
            return
        self.next_ns = now_ns + LOOK_EVERY_NS
        if lost := self._lost():
            raise NamesLost(words(lost))
