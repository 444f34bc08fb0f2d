"""Memory and CPU time of processes, and free memory of the host and the control group."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.shm.cpus import groups, text_of, unified_groups

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)
_NO_LIMIT: Final = 1 << 60
"""A larger number stands for no limit in control groups of version 1."""


class ProcessUsage(NamedTuple):
    """Resources that one process has used.

    Attributes:
        own_bytes: its peak resident memory, without files and shared memory, which another process
            like it would share.
        cpu_s: CPU seconds since it began.
    """

    own_bytes: int
    cpu_s: float


def usage(pid: int, proc: Path = _PROC) -> ProcessUsage | None:
    """Return the resources that a process has used; None if it has ended.

    Args:
        pid: its process id.
        proc: the mount point of procfs.
    """
    with suppress(OSError, ValueError, IndexError):
        # The name in parentheses may hold any character.
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        kib = _kib(proc / str(pid) / "status")
        shared = kib.get("RssFile", 0) + kib.get("RssShmem", 0)
        return ProcessUsage(max(kib["VmHWM"] - shared, 0) << 10 if "VmHWM" in kib else 0, cpu_s)
    return None


def free_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the memory available to further processes; None if it is unknown.

    Args:
        proc: the mount point of procfs, for the host.
        cgroups: the mount point of control groups.
    """
    membership = text_of(proc / "self/cgroup")
    found = list(_unified(cgroups, membership)) + list(_legacy(cgroups, membership))
    available = _kib(proc / "meminfo").get("MemAvailable")
    if available is not None:
        found.append(available << 10)
    return min(found, default=None)


def _unified(cgroups: Path, membership: str) -> Iterator[int]:
    for name in unified_groups(membership):
        yield from _left(cgroups / name, "memory.max", "memory.current", "inactive_file")


def _legacy(cgroups: Path, membership: str) -> Iterator[int]:
    names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    for name in groups(membership, "memory", ("memory",)):
        yield from _left(cgroups / name, *names)


def _left(folder: Path, limit: str, used: str, cached: str) -> Iterator[int]:
    most, now = text_of(folder / limit).strip(), text_of(folder / used).strip()
    if not most.isdecimal() or not now.isdecimal() or int(most) >= _NO_LIMIT:
        return
    stat = dict(line.split()[:2] for line in text_of(folder / "memory.stat").splitlines())
    # The kernel frees the page cache on demand.
    yield max(int(most) - int(now) + int(stat.get(cached, 0)), 0)


def _kib(path: Path) -> dict[str, int]:
    return {name: int(count) for name, count in _KIB.findall(text_of(path))}
