"""Hang detection, by missing progress reports.

Each shows twice a second, unasked, that it moves. One that has not for half of the limit is looked
at several times in a row, and hangs where it is silent at every one of these looks. They are
counted, because time alone would be no proof: where the watching process was itself stopped, alone
or with the whole machine, all have been silent; but between its next two looks all have time to
move.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

LOOKS: Final = 4
"""At so many in a row a process that hangs is silent."""
_LOOKS_IN_LIMIT: Final = 10
"""Time from one look to the next, as a part of the limit."""


class Look(NamedTuple):
    """What a look at one process came to.

    Attributes:
        silent: looks in a row that found it silent, this one included.
        next_ns: when to look again.
    """

    silent: int
    next_ns: int

    @property
    def hangs(self) -> bool:
        """Whether it has been looked at long enough."""
        return self.silent >= LOOKS


def look(now_ns: int, beat_ns: int, silent: int, limit_ns: int) -> Look:
    """Look at a process.

    Args:
        now_ns: the time.
        beat_ns: when it last showed that it moves.
        silent: looks before this one, in a row, that found it silent.
        limit_ns: within which a process that hangs is found and another has taken its place.
    """
    doubtful_ns = beat_ns + limit_ns // 2
    if now_ns < doubtful_ns:
        return Look(0, doubtful_ns)
    return Look(silent + 1, now_ns + limit_ns // _LOOKS_IN_LIMIT)


@dataclass(slots=True)
class Pulse:
    """What is known of one process.

    Attributes:
        beat_ns: when it last showed that it moves.
        seen: what the latest look at it came to.
    """

    beat_ns: int
    seen: Look


class HangDetection:
    """Over any number of processes.

    Args:
        limit_ns: as of `look`.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._pulses: dict[int, Pulse] = {}

    def heard(self, pid: int, beat_ns: int) -> None:
        """A process moved at an instant."""
        pulse = self._pulses.get(pid)
        if pulse is not None:
            pulse.beat_ns = max(pulse.beat_ns, beat_ns)

    def step(self, now_ns: int, pids: Collection[int]) -> tuple[list[int], int | None]:
        """Look at those that it is time to look at.

        Args:
            now_ns: the time.
            pids: the processes to be watched.

        Returns:
            Which hang, each said once; and when to call again, None for never.
        """
        for pid in self._pulses.keys() - set(pids):
            del self._pulses[pid]
        for pid in pids:
            if pid not in self._pulses:
                self._pulses[pid] = Pulse(now_ns, Look(0, now_ns))
        hanging = []
        for pid, pulse in self._pulses.items():
            if pulse.seen.hangs or now_ns < pulse.seen.next_ns:
                continue
            pulse.seen = look(now_ns, pulse.beat_ns, pulse.seen.silent, self._limit_ns)
            if pulse.seen.hangs:
                hanging.append(pid)
        pulses = self._pulses.values()
        return hanging, min((p.seen.next_ns for p in pulses if not p.seen.hangs), default=None)
