"""Usable CPUs: the least of the affinity mask and the cgroup quotas of this process.

If a math library counts the host's cores instead, it starts too many threads, and the quota stops
all of them for most of every period. If a process spins on a single CPU, it keeps the process that
it waits for from running.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def usable_cpus(
    affinity: int | None = None, cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP
) -> int:
    """Return the CPUs that this process may use now, at least 1.

    Args:
        affinity: the number of CPUs in the affinity mask; read if it is not given.
        cgroups: where the cgroup file systems are mounted.
        membership: the file that names the cgroups of this process.
    """
    if affinity is None:
        affinity = len(os.sched_getaffinity(0))
    quotas = [
        cpu_max(text_of(cgroups / group / "cpu.max"))
        for group in unified_groups(text_of(membership))
    ]
    quotas += [
        cfs_quota(
            text_of(cgroups / group / "cpu.cfs_quota_us"),
            text_of(cgroups / group / "cpu.cfs_period_us"),
        )
        for group in legacy_groups(text_of(membership))
    ]
    return least_cpus(affinity, (quota for quota in quotas if quota is not None))


def least_cpus(affinity: int, quotas: Iterable[float]) -> int:
    """Return the least of the affinity and the quotas in CPUs, rounded up; at least 1."""
    return max(1, min([affinity, *map(math.ceil, quotas)]))


def cpu_max(text: str) -> float | None:
    """Return the quota in CPUs that a cgroup v2 ``cpu.max`` sets; None if it sets none."""
    quota, _, period = text.strip().partition(" ")
    return cfs_quota(quota, period)


def cfs_quota(quota: str, period: str) -> float | None:
    """Return the quota in CPUs of two texts in microseconds; None if they set none."""
    try:
        cpus = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def unified_groups(membership: str) -> list[str]:
    """Return the cgroup v2 folders, below the mounts, whose quota applies: the own and its parents.

    Args:
        membership: the text of ``/proc/self/cgroup``.
    """
    return groups(membership, controller="", mounts=("", "unified"))


def legacy_groups(membership: str) -> list[str]:
    """Return the same for cgroup v1, whose cpu controller has a mount of its own."""
    return groups(membership, controller="cpu", mounts=("cpu", "cpu,cpuacct"))


def groups(membership: str, controller: str, mounts: tuple[str, ...]) -> list[str]:
    """Return the folders, below the mounts, of the own cgroup and its parents.

    Args:
        membership: the text of ``/proc/self/cgroup``.
        controller: of cgroup v1; empty for v2, which has one tree for all.
        mounts: where that tree may be mounted.
    """
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            own = PurePosixPath(path)
            # A path that leads out of the mount names a cgroup that cannot be seen from here.
            visible = [] if ".." in own.parts or not own.is_absolute() else [own, *own.parents]
            groups = visible or [PurePosixPath("/")]
            return [
                str(mount / g.relative_to("/"))
                for mount in map(PurePosixPath, mounts)
                for g in groups
            ]
    return []


def text_of(path: Path) -> str:
    """Return the text of a kernel's file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
