"""Hang detection, by missing progress reports.

Each process reports twice a second that it moves. A process that has not reported for half of the
limit is looked at several times in a row. It hangs if it is silent at every one of these looks. The
looks are counted, because time alone is no proof. If the watching process itself was stopped, alone
or with the whole machine, all processes have been silent; but they have time to report between its
next two looks.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

LOOKS: Final = 4
"""Silent looks in a row that prove a hang."""
_LOOKS_IN_LIMIT: Final = 10
"""Time from one look to the next, as a part of the limit."""


class Look(NamedTuple):
    """Result of a look at one process.

    Attributes:
        silent: looks in a row that found it silent, this one included.
        next_ns: when to look again.
    """

    silent: int
    next_ns: int

    @property
    def hangs(self) -> bool:
        """True if enough looks in a row found it silent."""
        return self.silent >= LOOKS


def look(now_ns: int, beat_ns: int, silent: int, limit_ns: int) -> Look:
    """Look at a process.

    Args:
        now_ns: the time.
        beat_ns: its last report.
        silent: looks before this one, in a row, that found it silent.
        limit_ns: the time in which a hung process is found and replaced.
    """
    doubtful_ns = beat_ns + limit_ns // 2
    if now_ns < doubtful_ns:
        return Look(0, doubtful_ns)
    return Look(silent + 1, now_ns + limit_ns // _LOOKS_IN_LIMIT)


@dataclass(slots=True)
class Pulse:
    """Last report of one process, and the last look at it.

    Attributes:
        beat_ns: its last report.
        seen: the result of the latest look.
    """

    beat_ns: int
    seen: Look


class HangDetection:
    """Hang detection for any number of processes.

    Args:
        limit_ns: as of `look`.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._pulses: dict[int, Pulse] = {}

    def record_progress(self, pid: int, beat_ns: int) -> None:
        """Note that a process reported progress at an instant."""
        pulse = self._pulses.get(pid)
        if pulse is not None:
            pulse.beat_ns = max(pulse.beat_ns, beat_ns)

    def step(self, now_ns: int, pids: Collection[int]) -> tuple[list[int], int | None]:
        """Look at the processes whose next look is due.

        Args:
            now_ns: the time.
            pids: the processes to be watched.

        Returns:
            The processes that hang, each once; and when to call again, None for never.
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
