"""Kills by the kernel at the memory limit of a control group, by its counters.

A process that the kernel has killed looks as if somebody had sent SIGKILL. The counters of the
control groups tell the two apart.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.shm.cpus import groups, text_of, unified_groups

_NO_LIMIT: Final = 1 << 60
"""Limits from here on are none: the first version of control groups has a huge number for that."""
_REMEDY: Final = (
    "raise MemoryMax= of the unit or the container's --memory, or have fewer workers or smaller "
    "batches"
)


class _Group(NamedTuple):
    """Files of a control group.

    Attributes:
        folder: of the group.
        limit: the file of its memory limit.
        events: the file that counts kills.
        hits: the file and the line that count how often the limit was reached.
    """

    folder: Path
    limit: str
    events: str
    hits: tuple[str, str]


class MemoryKills:
    """Counts of the own control groups, since the last look.

    Args:
        root: where ``proc`` and ``sys`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._groups = [*_own_groups(root)]
        self._killed = self._kills()
        self._hit = self._hits()

    def words(self) -> str:
        """Return the part of a message about a process that ended by SIGKILL just now.

        Each kill explains one process. It is empty if no group has counted one.
        """
        if self._kills() <= self._killed:
            return ""
        # Others that the kernel has killed at the same time are explained by the rest.
        self._killed += 1
        hit = self._hits()
        reached = [
            group
            for group, before, now in zip(self._groups, self._hit, hit, strict=True)
            if now > before
        ]
        if self._kills() <= self._killed:
            self._hit = hit
        for group in reached:
            limit = _number(text_of(group.folder / group.limit))
            if 0 <= limit < _NO_LIMIT:
                return (
                    f" by the kernel: control group {group.folder} has reached its memory limit "
                    f"({group.limit}, {limit} bytes); {_REMEDY}"
                )
        return (
            " by the kernel: the host has no memory left, or a control group around this one has "
            "reached its limit"
        )

    def _kills(self) -> int:
        """Return the kills of the own group, or of the first of its parents that counts them."""
        for group in self._groups:
            counted = _line(text_of(group.folder / group.events), "oom_kill")
            if counted >= 0:
                return counted
        return 0

    def _hits(self) -> list[int]:
        return [
            _line(text_of(group.folder / group.hits[0]), group.hits[1]) for group in self._groups
        ]


def _own_groups(root: Path) -> Iterator[_Group]:
    """Yield the control groups of this process, the innermost first."""
    membership, mounts = text_of(root / "proc/self/cgroup"), root / "sys/fs/cgroup"
    for name in groups(membership, "memory", ("memory",)):
        hits = "memory.failcnt", ""
        yield _Group(mounts / name, "memory.limit_in_bytes", "memory.oom_control", hits)
    for name in unified_groups(membership):
        hits = "memory.events", "oom"
        yield _Group(mounts / name, "memory.max", "memory.events", hits)


def _line(text: str, name: str) -> int:
    """Return the number behind a name in a file of counters; -1 if it is not there."""
    lines = [line.rpartition(" ") for line in text.splitlines()]
    return next((_number(value) for found, _, value in lines if found == name), -1)


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else -1
