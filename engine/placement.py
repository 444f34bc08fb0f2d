"""How many CPUs there are to use, and how many threads each worker may start on them.

A math library that counts the cores of the host instead of those it may use starts too many
threads, and a CPU quota then stops them all for most of every period. So the count here is the
least of the affinity mask and every cgroup quota above this process.
"""

import logging
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from ringbatch.engine.plan import Host, listed, parsed

logger = logging.getLogger("ringbatch.supervisor")

THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""What the math libraries read once, when they load. The first is the one that all of the others
fall back to."""

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_NODES: Final = Path("/sys/devices/system/node")


def usable_cpus(
    affinity: int | None = None, cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP
) -> int:
    """The CPUs that this process may use now, at least 1.

    Args:
        affinity: the number of CPUs in the affinity mask; read where it is not given.
        cgroups: where the cgroup file systems are mounted.
        membership: the file that names the cgroups of this process.
    """
    if affinity is None:
        affinity = len(os.sched_getaffinity(0))
    quotas = [
        cpu_max(_text(cgroups / group / "cpu.max")) for group in unified_groups(_text(membership))
    ]
    quotas += [
        cfs_quota(
            _text(cgroups / group / "cpu.cfs_quota_us"),
            _text(cgroups / group / "cpu.cfs_period_us"),
        )
        for group in legacy_groups(_text(membership))
    ]
    return least_cpus(affinity, (quota for quota in quotas if quota is not None))


def least_cpus(affinity: int, quotas: Iterable[float]) -> int:
    """The least of the affinity and the quotas in CPUs, rounded up; at least 1."""
    return max(1, min([affinity, *map(math.ceil, quotas)]))


def cpu_max(text: str) -> float | None:
    """The quota in CPUs that a cgroup v2 ``cpu.max`` sets; None where it sets none."""
    quota, _, period = text.strip().partition(" ")
    return cfs_quota(quota, period)


def cfs_quota(quota: str, period: str) -> float | None:
    """The quota in CPUs from two texts in microseconds; None where they set none."""
    try:
        cpus = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def unified_groups(membership: str) -> list[str]:
    """The cgroup v2 folders, below the mounts, whose quota applies: the own and all above it.

    Args:
        membership: the text of ``/proc/self/cgroup``.
    """
    return _groups(membership, controller="", mounts=("", "unified"))


def legacy_groups(membership: str) -> list[str]:
    """The same for cgroup v1, where the cpu controller has a mount of its own."""
    return _groups(membership, controller="cpu", mounts=("cpu", "cpu,cpuacct"))


def _groups(membership: str, controller: str, mounts: tuple[str, ...]) -> list[str]:
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


def host(nodes: Path = _NODES) -> Host:
    """The CPUs that this process may use, and the NUMA nodes they belong to.

    Args:
        nodes: the folder in which the kernel has one for each node.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    by_node = {}
    for folder in sorted(nodes.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        own = parsed(_text(folder / "cpulist"))
        by_node[int(folder.name[4:])] = tuple(cpu for cpu in cpus if cpu in own)
    return Host(cpus, by_node, usable_cpus())


@contextmanager
def on_cpus(cpus: Collection[int] | None) -> Iterator[None]:
    """Whoever is started meanwhile runs on these CPUs alone; None leaves it as it is.

    Where they are gone since they were planned, it runs wherever it can.
    """
    before = os.sched_getaffinity(0)
    try:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
    except OSError as error:
        logger.warning("CPUs %s cannot be used any more: %s", listed(cpus or ()), error)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wake_without_preempting() -> None:
    """Schedule this process, and those it starts from now on, as SCHED_BATCH.

    Who is woken then does not push aside who runs. A frontend that has just rung for the
    collector goes on with the requests it has at hand, and the batch grows; with CPUs to spare
    nothing changes. Where a sandbox forbids it, things stay as they are.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def thread_environment(
    threads: int | None, share: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """The variables to add to a worker's environment before a math library loads.

    Args:
        threads: what the model's configuration says; wins over the environment.
        share: the worker's share of the CPUs.
        environment: that of the supervisor. A variable set there is left alone, and with
            ``OMP_NUM_THREADS`` set the others stay unset, because they follow it by themselves.
    """
    if threads is not None:
        return dict.fromkeys(THREAD_VARIABLES, str(threads))
    if environment.get(THREAD_VARIABLES[0]):
        return {}
    return {name: str(share) for name in THREAD_VARIABLES if not environment.get(name)}


def threads(environment: Mapping[str, str]) -> int:
    """The threads of one worker, as `thread_environment` or the operator has set them.

    Args:
        environment: the worker's. OpenMP allows a list there, with a number for each level of
            nesting; the first one counts.
    """
    first = environment.get(THREAD_VARIABLES[0], "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else usable_cpus()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
